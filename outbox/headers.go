package outbox

import (
	"bytes"
	"encoding/json"
)

// headersJSON returns headers as they are stored: a JSON object with sorted names,
// or "" for an empty map.
func headersJSON(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // escaping for browsers would only make the text longer
	_ = encoder.Encode(headers)  // can't fail for a map of strings
	return string(bytes.TrimSpace(text.Bytes()))
}
