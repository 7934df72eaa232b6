package cloudevents_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
)

// An event in structured mode is a JSON object from which the message's payload can be read again.
func FuzzStructured(f *testing.F) {
	f.Add("id", "orders", "key", []byte(`{"a":1}`), "ce-tenant", "a")
	f.Add("", "\u2028", "😀", []byte{0xff, 0}, "content-type", "text/plain; charset=utf-8")
	f.Add("i", "t", "", []byte(`"text"`), "Content-Type", "application/json")
	f.Add("i", "t", "k", []byte("1e400"), "ce_id", "other")
	made, err := cloudevents.New(cloudevents.HTTP, cloudevents.Options{Mode: cloudevents.Structured, Source: "/shop"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, topic, key string, payload []byte, name, value string) {
		for _, text := range []string{id, topic, key, name, value} {
			if !utf8.ValidString(text) { // outbox refuses it
				return
			}
		}
		event, err := made.Message(sinks.Message{Message: outbox.Message{ID: id, Topic: topic, Key: key, Payload: payload, Headers: map[string]string{name: value}}})
		if err != nil {
			return
		}
		var object struct {
			SpecVersion string          `json:"specversion"`
			ID          *string         `json:"id"`
			Type        *string         `json:"type"`
			Data        json.RawMessage `json:"data"`
			Base64      *string         `json:"data_base64"`
			ContentType string          `json:"datacontenttype"`
		}
		if err := json.Unmarshal(event.Payload, &object); err != nil || object.SpecVersion != "1.0" || object.ID == nil || object.Type == nil {
			t.Fatalf("%q, %v", event.Payload, err)
		}
		var text string
		switch {
		case object.Base64 != nil:
			data, err := base64.StdEncoding.DecodeString(*object.Base64)
			if err != nil || !bytes.Equal(data, payload) {
				t.Errorf("%q is read as %q, %v", payload, data, err)
			}
		case len(payload) == 0 && object.Data == nil:
		case bytes.Equal(object.Data, bytes.TrimSpace(payload)):
		case json.Unmarshal(object.Data, &text) == nil && text == string(payload):
		default:
			t.Errorf("%q becomes %q", payload, event.Payload)
		}
	})
}
