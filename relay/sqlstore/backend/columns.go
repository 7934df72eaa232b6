package backend

import (
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The columns of a message's tables.
const (
	// Kept are those that stay as they are wherever a row goes.
	Kept = "id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at"

	// Changing are those that a settlement may change.
	Changing = "attempts, crashes, available_at, last_error"

	// Returning are those that a held row takes back to the hot table, which computes
	// the lane again.
	Returning = "id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, created_at"
)

// Of has the columns of the table or subquery with that name.
func Of(name, columns string) string {
	return name + "." + strings.ReplaceAll(columns, ", ", ", "+name+".")
}

// IDIsFree is a condition of held rows t: no row of the hot table has their id, as one
// may after ids began anew. A count is asked for each row, whatever a planner makes of it.
func IDIsFree(table dialect.Table) string {
	return "(SELECT COUNT(*) FROM " + table.Hot + " h WHERE h.lane = t.lane AND h.id = t.id) = 0"
}

// FirstOfID is a condition of held rows t that are due: of several with one id, of which
// a condition of o says that they are due, one comes back at a time.
func FirstOfID(table dialect.Table, due string) string {
	return "(SELECT COUNT(*) FROM " + table.Held + " o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id < t.message_id AND " + due + ") = 0"
}

// Nullable is the text, or NULL if it is empty.
func Nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}
