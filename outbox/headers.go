package outbox

import (
	"bytes"
	"encoding/json"
)

// headersJSON is the stored form of headers: an object, its names sorted;
// empty if there are none.
func headersJSON(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // what is for browsers would only make it longer
	_ = encoder.Encode(headers)  // a map of strings always can be
	return string(bytes.TrimSpace(text.Bytes()))
}
