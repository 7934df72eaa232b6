package outbox

import "encoding/json"

// Topic is a topic whose messages are values of one type, as JSON: a constant that
// those who write and those who handle its messages share.
//
//	const OrdersPaid outbox.Topic[OrderPaid] = "orders.paid"
//
//	err = writer.Write(ctx, tx, OrdersPaid.Message("order-42", OrderPaid{Total: 30}))
//
// In the same program rowrelay.Handle gives them to a function, decoded.
type Topic[T any] string

// Message returns a message of the topic whose payload is the body, as encoding/json
// writes it. Whatever else is wanted of it can be set. A body that can't be written as JSON
// is told by [Writer.Write], which refuses the message as [ErrInvalid].
func (t Topic[T]) Message(key string, body T) Message {
	m := Message{Topic: string(t), Key: key}
	if m.Payload, m.unwritable = json.Marshal(body); m.unwritable != nil {
		m.Payload = nil
	}
	return m
}
