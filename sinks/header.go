package sinks

import "strings"

// Headers whose names begin with rowrelay-, in upper or lower case, are reserved for rowrelay:
// messages of producers can't have them. Sinks add most of them for the destination. The relay
// writes the headers below to messages that it creates; sinks send these like all other headers.
const (
	ownHeaders = "rowrelay-"

	// DeadLetterHeader is the prefix of the headers of a dead letter. They identify the parked
	// message, and say why it was parked.
	DeadLetterHeader = ownHeaders + "dead-letter-"

	// ReplayedHeader is the header of a message that a replay sends again. It identifies the replay.
	ReplayedHeader = ownHeaders + "replayed"
)

// ReservedHeader reports whether only sinks may add a header with this name. A sink rejects a
// message that has one.
func ReservedHeader(name string) bool {
	name = strings.ToLower(name)
	carried := strings.HasPrefix(name, DeadLetterHeader) || name == ReplayedHeader
	return strings.HasPrefix(name, ownHeaders) && !carried
}
