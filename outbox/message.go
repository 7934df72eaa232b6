package outbox

import "time"

// Message is one message to be delivered. The zero values of all fields but
// Topic are valid. A Message is a plain value: it may be copied, and its maps
// and slices are not changed by this package.
type Message struct {
	// ID identifies the message to its consumers, who recognise a duplicate by
	// it: a UUID in its canonical text form, stored in lower case. Empty means
	// that the [Writer] makes one with [NewID].
	ID string

	// Topic selects the route, and so the sink, that the message takes.
	// Required; 1 to 255 bytes of UTF-8 without U+0000.
	Topic string

	// Key is what the message is ordered by: messages with the same key go to
	// their sink one after the other. Empty means no key, and so no order. At
	// most 255 bytes of UTF-8 without U+0000.
	Key string

	// Payload is the body. Nil is stored as NULL, which is not the same as an
	// empty, non-nil slice. At most 1 MiB unless the Writer is told otherwise.
	Payload []byte

	// Headers travel with the message to its consumer. Names have 1 to 255
	// bytes, no control characters, and don't begin with "rowrelay-" in any
	// letter case; values have no U+0000; both are UTF-8, and all together have
	// at most 16 KiB.
	Headers map[string]string

	// AvailableAt is the earliest time of delivery, by the database's clock.
	// The zero time means at once; others are in the years 1970 to 2999. A
	// message that is written with a later time gives up its place in the order
	// of its key.
	AvailableAt time.Time

	// ExpiresAt is when the message is too old to be sent, by the database's clock: from
	// then on it is parked, or discarded, as its route says. What is being sent then isn't
	// called back. The zero time means never; others are in the years 1970 to 2999.
	ExpiresAt time.Time

	// Priority orders messages where a relay claims by rows and was told to
	// take the highest first. RabbitMQ's sink, lines and plug-ins hand it on. Default 0.
	Priority int16

	unwritable error // why a Topic could make no payload of its body
}
