package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// relay.New and relay.NewConsumer need a store. It also has the methods for operators, such as Status.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// SQLite needs a write-ahead log, a busy timeout, and transactions that take the write lock when
	// they begin.
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	tables, err := migrations.New(db, dialect.SQLite(), migrations.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := tables.Up(ctx); err != nil {
		log.Fatal(err)
	}
	writer, err := outbox.NewWriter(dialect.SQLite(), outbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := writer.Write(ctx, outbox.WithoutTransaction(db), outbox.Message{Topic: "orders.paid", Key: "order-42"}); err != nil {
		log.Fatal(err)
	}

	store, err := sqlstore.Open(ctx, db, dialect.SQLite(), sqlstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	status, err := store.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("pending:", status.Counts[storage.StatePending])
	// Output:
	// pending: 1
}
