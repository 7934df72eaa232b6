package backend

import "github.com/rowrelay/rowrelay/relay/storage"

// A copy is a new message that is written from a row: see [storage.Copy]. Each database has one
// INSERT INTO the hot table … SELECT of rows t, and of g, what is given for each: the row's lane,
// id and message_id, and the copy's copy_id, copy_topic, copy_headers and copy_sinks. A settlement
// says which row, and has the copy as its DeadLetter.

const (
	// CopyInto are the columns that a copy is written with. All others have their defaults.
	CopyInto = "message_id, topic, message_key, payload, payload_text, headers, priority, sinks"

	// CopyFrom are their values.
	CopyFrom = "g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, g.copy_sinks"
)

// BySinks says that the settlement's row is known by its sinks, too: of a held one there may be
// several, and one that is settled for some sinks is so only while it names those that it did.
func BySinks(s *storage.Settlement) bool { return s.Deferred || s.Left != "" }

// NamesSinks says that a settlement by lanes moves a hot row that names sinks. In a batch all do,
// and the same, or none does; then a row is changed only if it still has these. A server may have lost
// that they were written, while the lease holds.
func NamesSinks(s *storage.Settlement) bool { return s.Sinks != "" && !s.Deferred && s.Token == "" }

// DeadLettersOf are the settlements that write a dead letter, by where their rows are.
func DeadLettersOf(settlements []storage.Settlement) (hot, held []storage.Settlement) {
	for i := range settlements {
		switch s := &settlements[i]; {
		case s.DeadLetter == nil:
		case s.Deferred:
			held = append(held, *s)
		default:
			hot = append(hot, *s)
		}
	}
	return hot, held
}
