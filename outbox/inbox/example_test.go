package inbox_test

import (
	"context"
	"database/sql"
	"log"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
)

// must keeps the examples short.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// record stands for the record type of a Kafka client.
type record struct {
	Headers []struct {
		Key   string
		Value []byte
	}
	Value []byte
}

// A consumer handles each record of the Kafka sink's topic in its own transaction.
func ExampleInbox_Once() {
	in := must(inbox.New(dialect.Postgres(), "billing", inbox.Options{Table: "shop.inbox"}))
	consume := func(ctx context.Context, db *sql.DB, r record) error {
		id := ""
		for _, header := range r.Headers {
			if header.Key == "rowrelay-message-id" {
				id = string(header.Value)
			}
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		first, err := in.Once(ctx, tx, id)
		if err != nil || !first {
			return err // nil for a duplicate: its effect is already committed, so the caller commits the record's offset
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments (body) VALUES ($1)", r.Value); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = consume // the consumer's loop calls it
}

func ExampleInbox_Clean() {
	in := must(inbox.New(dialect.Postgres(), "billing", inbox.Options{Window: 30 * 24 * time.Hour}))
	cleanHourly := func(ctx context.Context, db *sql.DB) {
		for {
			if _, err := in.Clean(ctx, db); err != nil {
				log.Print(err) // the next call deletes the rest
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Hour):
			}
		}
	}
	_ = cleanHourly // the program runs it
}
