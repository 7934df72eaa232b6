package memstore_test

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// The example tests a handler without a database. The table's history has each change of
// a row.
func Example() {
	db := memstore.New()
	order := db.Begin()
	order.Insert(outbox.Message{Topic: "orders.placed", Key: "order-1"})
	order.Commit()
	refused := db.Begin()
	refused.Insert(outbox.Message{Topic: "orders.placed", Key: "order-2"})
	refused.Rollback()

	r, err := relay.New(db.Store(), relay.Options{
		Name: "test", Drain: true,
		Sinks: map[string]relay.SinkOptions{"handler": {Sink: inproc.Func(func(_ context.Context, m sinks.Message) error {
			fmt.Println("handle", m.Key)
			return nil
		})}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := r.Run(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range db.History() {
		if change.ID > 0 {
			fmt.Println(change.Op, "row", change.ID, "becomes", change.To)
		}
	}
	// Output:
	// handle order-1
	// insert row 1 becomes pending
	// settle row 1 becomes done
}
