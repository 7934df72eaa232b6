package sinks

import (
	"encoding/json"
	"strings"
)

// ContentType guesses the media type of a payload that comes without one:
// application/json for a JSON object or array, application/octet-stream for any
// other, and nothing for a NULL payload.
func ContentType(payload []byte) string {
	trimmed := strings.TrimLeft(string(payload[:min(len(payload), 64)]), " \t\r\n")
	looksLikeJSON := strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")
	switch {
	case payload == nil:
		return ""
	case looksLikeJSON && json.Valid(payload):
		return "application/json"
	}
	return "application/octet-stream"
}
