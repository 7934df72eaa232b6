package sinks

import "strings"

// Headers whose names begin with rowrelay-, in upper or lower case, are reserved for rowrelay:
// producers can't set them. Sinks add most of these headers for the destination. The headers below
// are different: the relay adds them to messages that it creates, and sinks send them unchanged.
const (
	ownHeaders = "rowrelay-"

	// DeadLetterHeader is the prefix of the headers that the relay adds to a dead letter. They
	// identify the parked message and give the reason why it was parked.
	DeadLetterHeader = ownHeaders + "dead-letter-"

	// ReplayedHeader is a header of each message that a replay sends again. It identifies the replay.
	ReplayedHeader = ownHeaders + "replayed"
)

// ReservedHeader reports whether only sinks may add a header with this name. A sink rejects a
// message that already has such a header.
func ReservedHeader(name string) bool {
	name = strings.ToLower(name)
	carried := strings.HasPrefix(name, DeadLetterHeader) || name == ReplayedHeader
	return strings.HasPrefix(name, ownHeaders) && !carried
}
