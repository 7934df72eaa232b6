package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// must returns the value, and panics on an error. It keeps the examples short.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// newShop returns a database with an outbox and a table of orders.
func newShop() (db *sql.DB, end func()) {
	dir := must(os.MkdirTemp("", "rowrelay-example-"))
	db = must(sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"))
	must(must(migrations.New(db, dialect.SQLite(), migrations.Options{})).Up(context.Background()))
	must(db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY)"))
	return db, func() {
		check(db.Close())
		check(os.RemoveAll(dir))
	}
}

// placeOrder writes an order and its message in one transaction.
func placeOrder(db *sql.DB, writer *outbox.Writer, order string, accepted bool) {
	ctx := context.Background()
	tx := must(db.BeginTx(ctx, nil))
	defer tx.Rollback() // does nothing after the commit
	must(tx.Exec("INSERT INTO orders (id) VALUES (?)", order))
	check(writer.Write(ctx, tx, outbox.Message{Topic: "orders.placed", Key: order, Payload: []byte("a book")}))
	if accepted {
		check(tx.Commit())
	}
}

// An application that runs a relay. Only messages of committed transactions are delivered.
func Example() {
	ctx := context.Background()
	db, end := newShop()
	defer end()
	writer := must(outbox.NewWriter(dialect.SQLite(), outbox.Options{}))
	placeOrder(db, writer, "order-1", true)
	placeOrder(db, writer, "order-2", false)
	placeOrder(db, writer, "order-3", true)

	store := must(sqlstore.Open(ctx, db, dialect.SQLite(), sqlstore.Options{}))
	r := must(relay.New(store, relay.Options{
		Sinks: map[string]relay.SinkOptions{
			"print": {Workers: 1, Sink: inproc.Func(func(ctx context.Context, m sinks.Message) error {
				fmt.Printf("%s %s: %s\n", m.Topic, m.Key, m.Payload)
				return nil // an error would cause another attempt later
			})},
		},
		Drain: true, // return when nothing is left to deliver; a service omits this option
	}))
	check(r.Run(ctx))
	fmt.Println("done:", must(store.Status(ctx)).Counts[storage.StateDone])
	// Output:
	// orders.placed order-1: a book
	// orders.placed order-3: a book
	// done: 2
}

// An application that asks for messages instead of being called.
func ExampleNewConsumer() {
	ctx := context.Background()
	db, end := newShop()
	defer end()
	writer := must(outbox.NewWriter(dialect.SQLite(), outbox.Options{}))
	placeOrder(db, writer, "order-1", true)
	placeOrder(db, writer, "order-2", true)

	store := must(sqlstore.Open(ctx, db, dialect.SQLite(), sqlstore.Options{}))
	consumer := must(relay.NewConsumer(store, relay.ConsumerOptions{}))
	for _, delivery := range must(consumer.Receive(ctx, 10)) { // waits until a message is available
		fmt.Println(delivery.Key, "attempt", delivery.Attempt)
		if delivery.Key == "order-2" {
			check(delivery.Park(ctx, "no such book")) // or Retry(ctx, reason)
			continue
		}
		check(delivery.Done(ctx, ""))
	}
	check(consumer.Close(ctx))
	for _, m := range must(store.List(ctx, storage.Filter{State: storage.StateError})) {
		fmt.Println(m.Message.Key, m.State, m.LastError)
	}
	// Output:
	// order-1 attempt 1
	// order-2 attempt 1
	// order-2 error refused: no such book
}

// All problems of the options are reported together.
func ExampleNew() {
	sink := inproc.Func(func(context.Context, sinks.Message) error { return errors.New("never called") })
	_, err := relay.New(&sqlstore.Store{}, relay.Options{
		Pick:   storage.Newest,
		Sinks:  map[string]relay.SinkOptions{"mail": {Sink: sink}, "audit": {Sink: sink}},
		Routes: []relay.Route{{Topic: "orders", Prefix: "orders.", Sink: "mail"}, {Topic: "*", Sink: "adit"}},
	})
	fmt.Println(err)
	// Output:
	// relay: pick "newest": only a relay that claims by rows can pick; lanes are read in the order of ids
	// route 1: exactly one of topic, prefix and pattern must be set
	// route 2: there is no sink "adit"
}
