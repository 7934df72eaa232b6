// Package bind converts values to arguments of a statement, mainly lists, which are passed as
// one parameter. The dialects and the relay's store use it.
package bind

import "encoding/json"

// Nullable returns the text, or nil (NULL) if the text is empty.
func Nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// JSON returns a list as a JSON array; an empty or nil list is "[]". The items are numbers,
// strings, booleans, or lists of these.
func JSON[T any](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // can't happen with items of these types
	}
	return string(text)
}
