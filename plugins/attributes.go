package plugins

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// attributesOf are those of a log line, sorted; its time is about the relay's.
func attributesOf(members map[string]any) (attributes []slog.Attr) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch strings.TrimPrefix(name, "@") {
		case slog.MessageKey, "message", slog.LevelKey, slog.TimeKey, "timestamp", "caller":
			continue
		}
		attributes = append(attributes, slog.String(name, shown(members[name])))
	}
	return attributes
}

func shown(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}
