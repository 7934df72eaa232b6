package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func ExampleValidationError() {
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{MaxPayload: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	var tx *sql.Tx // not used: Write checks the messages first
	err = writer.Write(context.Background(), tx, outbox.Message{Topic: "orders.paid"}, outbox.Message{Key: "order-42"})
	var invalid *outbox.ValidationError
	if errors.As(err, &invalid) {
		fmt.Println("index", invalid.Index, "field", invalid.Field)
	}
	fmt.Println(err)
	// Output:
	// index 1 field Topic
	// write 2 messages to outbox: message 1: Topic must not be empty
}

func ExampleNewID() {
	first, second := outbox.NewID(), outbox.NewID()
	fmt.Println(len(first), first[14:15], first < second)
	// Output: 36 7 true
}
