package inproc_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// deliver sends messages to a sink as a relay does, and prints the outcomes.
func deliver(sink sinks.Sink, messages ...outbox.Message) {
	var batch []sinks.Message
	for _, m := range messages {
		batch = append(batch, sinks.Message{Message: m, Attempt: 1})
	}
	for _, o := range sink.Send(context.Background(), batch) {
		fmt.Println("->", o.Result, o.Reason, o.RetryAfter)
	}
}

func ExampleFunc() {
	sink := inproc.Func(func(ctx context.Context, m sinks.Message) error {
		fmt.Printf("%s: %s\n", m.Topic, m.Payload)
		return nil
	})
	deliver(sink, outbox.Message{Topic: "greetings", Payload: []byte("hello")})
	// Output:
	// greetings: hello
	// -> delivered  0s
}

func ExampleMux() {
	type Order struct {
		ID int `json:"id"`
	}
	mux := inproc.Mux{ParkUnknownTopics: true} // without it, they wait for a process with a handler
	mux.Handle("orders.placed", inproc.JSON(func(ctx context.Context, o Order, m sinks.Message) error {
		fmt.Println("pack order", o.ID)
		return nil
	}))
	mux.Handle("orders.cancelled", inproc.JSON(func(ctx context.Context, o Order, m sinks.Message) error {
		return inproc.RetryAfter(errors.New("it is being packed"), time.Minute)
	}))
	deliver(inproc.Func(mux.Serve),
		outbox.Message{Topic: "orders.placed", Payload: []byte(`{"id":42}`)},
		outbox.Message{Topic: "orders.placed", Payload: []byte(`forty-two`)},
		outbox.Message{Topic: "orders.cancelled", Payload: []byte(`{"id":42}`)},
		outbox.Message{Topic: "orders.lost"},
	)
	// Output:
	// pack order 42
	// -> delivered  0s
	// -> reject invalid 0s
	// -> retry handler_error 1m0s
	// -> reject unroutable 0s
}

func ExampleBatch() {
	sink := inproc.Batch(func(ctx context.Context, batch []sinks.Message) error {
		each := make(inproc.Errors, len(batch))
		for i, m := range batch {
			if m.Payload == nil {
				each[i] = inproc.Permanent(errors.New("there is nothing to index"))
			}
		}
		fmt.Println("indexed a batch of", len(batch))
		return each
	}, inproc.BatchOptions{Messages: 1000})
	deliver(sink, outbox.Message{Topic: "pages", Payload: []byte("text")}, outbox.Message{Topic: "pages"})
	// Output:
	// indexed a batch of 2
	// -> delivered  0s
	// -> reject refused 0s
}

// The relay begins the transaction, marks the message as delivered in it, calls the
// handler and commits. The bill is written if and only if the message is marked.
func ExampleTx() {
	sink := inproc.Tx(func(ctx context.Context, tx *sql.Tx, m sinks.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO bills (order_id) VALUES ($1)", m.Key)
		return err
	})
	var _ sinks.TxSink = sink                                 // the relay recognises it by this interface
	deliver(sink, outbox.Message{Topic: "orders", Key: "42"}) // without a relay there is no transaction
	// Output: -> unavailable config 0s
}
