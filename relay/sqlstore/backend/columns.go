package backend

import "strings"

// The columns of a message's tables.
const (
	// Kept are those that stay as they are wherever a row goes.
	Kept = "id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at"

	// Changing are those that a settlement may change.
	Changing = "attempts, crashes, available_at, last_error"
)

// Of has the columns of the table or subquery with that name.
func Of(name, columns string) string {
	return name + "." + strings.ReplaceAll(columns, ", ", ", "+name+".")
}

// Nullable is the text, or NULL if it is empty.
func Nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}
