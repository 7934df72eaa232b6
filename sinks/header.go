package sinks

import "strings"

// The headers whose names begin with rowrelay-, in any case, are rowrelay's own: no producer's
// message has one. Most of them a sink makes for its destination. Those below a relay writes
// with a message of its own, and a sink carries them as it does a producer's.
const (
	ownHeaders = "rowrelay-"

	// DeadLetterHeader is what the names begin with of a dead letter's headers, which say of
	// which message it is, and why that was parked.
	DeadLetterHeader = ownHeaders + "dead-letter-"

	// ReplayedHeader says by which replay a message that had been delivered was sent again.
	ReplayedHeader = ownHeaders + "replayed"
)

// ReservedHeader says that no message can have a header with this name, as it is for sinks to
// make: a sink rejects one that has.
func ReservedHeader(name string) bool {
	name = strings.ToLower(name)
	carried := strings.HasPrefix(name, DeadLetterHeader) || name == ReplayedHeader
	return strings.HasPrefix(name, ownHeaders) && !carried
}
