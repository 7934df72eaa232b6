package outbox

import "encoding/json"

// Topic is a topic whose payloads are JSON values of type T. Declare it as a
// constant that the writers and handlers of its messages share:
//
//	const OrdersPaid outbox.Topic[OrderPaid] = "orders.paid"
//
//	err = writer.Write(ctx, tx, OrdersPaid.Message("order-42", OrderPaid{Total: 30}))
//
// In the same program, rowrelay.Handle passes the decoded values to a function.
type Topic[T any] string

// Message returns a message of the topic with the body, encoded by encoding/json, as its
// payload. The caller may set the other fields. If the body can't be encoded as JSON,
// [Writer.Write] refuses the message with an error that matches [ErrInvalid].
func (t Topic[T]) Message(key string, body T) Message {
	m := Message{Topic: string(t), Key: key}
	if m.Payload, m.unwritable = json.Marshal(body); m.unwritable != nil {
		m.Payload = nil
	}
	return m
}
