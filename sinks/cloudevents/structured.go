package cloudevents

import (
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"
)

const structuredType = "application/cloudevents+json; charset=UTF-8"

// json is the event in JSON event format (section 3). Data of a JSON type is
// part of it as it is; text of a text type is a string; all else is in base64,
// also what calls itself JSON and isn't.
func (e event) json() []byte {
	members := make(map[string]any, len(e.attributes)+2)
	for name, value := range e.attributes {
		members[name] = value
	}
	if e.contentType != "" {
		members["datacontenttype"] = e.contentType
	}
	switch kind := mediaType(e.contentType); {
	case e.data == nil:
	case isJSON(kind) && json.Valid(e.data):
		members["data"] = json.RawMessage(e.data)
	case strings.HasPrefix(kind, "text/") && utf8.Valid(e.data):
		members["data"] = string(e.data)
	default:
		members["data_base64"] = e.data
	}
	text, _ := json.Marshal(members) // texts, bytes and valid JSON can't fail
	return text
}

func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return kind
}

func isJSON(kind string) bool {
	return strings.HasSuffix(kind, "/json") || strings.HasSuffix(kind, "+json")
}
