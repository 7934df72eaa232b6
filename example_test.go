package rowrelay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// A shop that writes messages and handles them itself.
func Example() {
	ctx, stop := context.WithCancel(context.Background()) // a program has signal.NotifyContext here
	dir := must(os.MkdirTemp("", "rowrelay-example-"))
	defer func() { check(os.RemoveAll(dir)) }()
	db := must(sql.Open("sqlite", rowrelay.SQLiteFile(filepath.Join(dir, "shop.db"))))
	defer db.Close()
	must(db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY)"))

	app := must(rowrelay.New(db, rowrelay.SQLite, rowrelay.Options{}))
	check(app.Migrate(ctx))
	app.Handle("orders.placed", func(ctx context.Context, m sinks.Message) error {
		fmt.Printf("%s %s: %s\n", m.Topic, m.Key, m.Payload)
		stop()
		return nil // an error is another attempt, later
	})

	place := func(order string, accepted bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", order); err != nil {
			return err
		}
		if err := app.Write(ctx, tx, outbox.Message{Topic: "orders.placed", Key: order, Payload: []byte("a book")}); err != nil {
			return err
		}
		if !accepted {
			return errors.New("card declined")
		}
		return tx.Commit()
	}
	fmt.Println(place("order-1", false))
	fmt.Println(place("order-2", true))

	check(app.Run(ctx)) // until the context ends
	// Output:
	// card declined
	// <nil>
	// orders.placed order-2: a book
}

// must and check keep the example short.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
