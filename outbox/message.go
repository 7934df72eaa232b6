package outbox

import "time"

// Message is one message to be delivered. The zero values of all fields but
// Topic are valid. A Message is a plain value: it may be copied, and this
// package doesn't change its maps and slices.
type Message struct {
	// ID identifies the message to its consumers, which use it to recognise
	// duplicates. It is a UUID in its canonical text form, stored in lower case. If
	// ID is empty, the [Writer] generates a UUID with [NewID].
	ID string

	// Topic selects the route of the message, and the route names the sink.
	// Required; 1 to 255 bytes of UTF-8 without U+0000.
	Topic string

	// Key orders the message: messages with the same key are delivered one at a
	// time, in the order in which they were inserted. A message with an empty key
	// has no order. At most 255 bytes of UTF-8 without U+0000.
	Key string

	// Payload is the body. A nil Payload is stored as NULL, and an empty, non-nil
	// Payload as an empty value. At most 1 MiB unless Options.MaxPayload changes it.
	Payload []byte

	// Headers are delivered with the message. Names have 1 to 255 bytes, no
	// control characters, and don't begin with "rowrelay-" in any letter case.
	// Values have no U+0000. Names and values are UTF-8, and take at most
	// 16 KiB in total.
	Headers map[string]string

	// AvailableAt is the earliest time of delivery, on the database's clock.
	// The zero time means immediately; other times are in the years 1970 to
	// 2999. A message that is written with a future time doesn't keep the order
	// of its key: later messages of the key don't wait for it.
	AvailableAt time.Time

	// ExpiresAt is the time from which the message is no longer sent, on the database's
	// clock. The relay parks or discards an expired message, depending on its route's configuration.
	// A send that is already running is not stopped. The zero time means never; other
	// times are in the years 1970 to 2999.
	ExpiresAt time.Time

	// Priority orders messages if the relay claims by rows and is configured to
	// pick the highest priority first. The RabbitMQ sink (with its option Priority),
	// the file and stdout sinks, and plug-ins pass it on to the consumer. Default 0.
	Priority int16

	unwritable error // the error of encoding/json if Topic.Message could not encode the body
}
