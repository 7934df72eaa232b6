package outboxdb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func Example() {
	ctx := context.Background()
	db, err := shop(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()

	writer, err := outbox.NewWriter(dialect.SQLite(), outbox.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Either both the order and its message are written, or neither is.
	pay := func(order string, accepted bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // has no effect after the commit
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", order); err != nil {
			return err
		}
		err = writer.Write(ctx, tx, outbox.Message{
			Topic:   "orders.paid",
			Key:     order,
			Payload: []byte(`{"order": "` + order + `"}`),
			Headers: map[string]string{"content-type": "application/json"},
		})
		if err != nil {
			return err
		}
		if !accepted {
			return errors.New("card declined")
		}
		return tx.Commit()
	}
	fmt.Println(pay("order-1", true))
	fmt.Println(pay("order-2", false))
	printMessages(ctx, db)
	// Output:
	// <nil>
	// card declined
	// pending orders.paid order-1 {"order": "order-1"}
}

// shop opens a database in memory with orders and an outbox.
func shop(ctx context.Context) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:shop?mode=memory&cache=shared")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY)"); err != nil {
		return nil, err
	}
	tables, err := migrations.New(db, dialect.SQLite(), migrations.Options{})
	if err != nil {
		return nil, err
	}
	_, err = tables.Up(ctx)
	return db, err
}

func printMessages(ctx context.Context, db *sql.DB) {
	rows, err := db.QueryContext(ctx, "SELECT state, topic, message_key, payload FROM outbox_messages ORDER BY id")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var state, topic, key, payload string
		if err := rows.Scan(&state, &topic, &key, &payload); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(state, topic, key, payload)
	}
}
