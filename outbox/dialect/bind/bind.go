// Package bind puts values into a statement's arguments where a plain placeholder isn't
// enough: above all lists, each of which is one parameter. Dialects and the relay's store
// share it.
package bind

import "encoding/json"

// Nullable is the text, or NULL if it is empty.
func Nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// JSON is a list as text; never null. The items are numbers, texts, flags, or lists of them.
func JSON[T any](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // such items always have a form
	}
	return string(text)
}
