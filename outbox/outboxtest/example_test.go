package outboxtest_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

// Messages has the method of outbox.Writer that the shop uses.
type Messages interface {
	Write(ctx context.Context, tx outbox.Execer, messages ...outbox.Message) error
}

// Shop is the code under test.
type Shop struct{ messages Messages }

// Pay is called in a transaction.
func (s Shop) Pay(ctx context.Context, tx *sql.Tx, order string) error {
	return s.messages.Write(ctx, tx, outbox.Message{Topic: "orders.paid", Key: order})
}

func ExampleRecorder() {
	var recorder outboxtest.Recorder
	shop := Shop{messages: &recorder}
	if err := shop.Pay(context.Background(), nil, "order-42"); err != nil {
		fmt.Println(err)
	}
	for _, message := range recorder.Messages() {
		fmt.Println(message.Topic, message.Key)
	}
	// Output: orders.paid order-42
}
