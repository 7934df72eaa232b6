package outboxtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
)

// ExpectAmong reports each wanted message that none of the messages is like, with what
// sets the nearest one apart. Fields of the wanted message that are empty aren't
// compared; of its Headers, and of a Payload that is a JSON object, only the members that it
// has, at any depth:
//
//	outboxtest.ExpectAmong(t, recorder.Messages(), outbox.Message{
//		Topic: "orders.paid", Key: "order-42", Payload: []byte(`{"customer": {"id": 7}}`),
//	})
func ExpectAmong(t testing.TB, got []outbox.Message, want ...outbox.Message) {
	t.Helper()
	for _, wanted := range want {
		if report := missing(got, wanted); report != "" {
			t.Errorf("%s", report)
		}
	}
}

// missing is empty if a message is like the wanted one.
func missing(got []outbox.Message, want outbox.Message) string {
	if len(got) == 0 {
		return fmt.Sprintf("no message was written, want one with %s", named(want))
	}
	nearest, fewest, topics := 0, []string(nil), map[string]bool{}
	for i, message := range got {
		topics[message.Topic] = true
		apart := unlike(message, want)
		if len(apart) == 0 {
			return ""
		}
		if want.Topic != "" && message.Topic != want.Topic {
			continue
		}
		if fewest == nil || len(apart) < len(fewest) || message.Key == want.Key && got[nearest].Key != want.Key {
			nearest, fewest = i, apart
		}
	}
	if fewest == nil {
		return fmt.Sprintf("no message has Topic %q, there are %q", want.Topic, slices.Sorted(maps.Keys(topics)))
	}
	return fmt.Sprintf("no message is like the wanted one with %s; of message %d, the nearest of %d,\n\t%s", named(want), nearest, len(got), strings.Join(fewest, "\n\t"))
}

func named(m outbox.Message) string { return fmt.Sprintf("Topic %q and Key %q", m.Topic, m.Key) }

// unlike says in what a message differs from a wanted one.
func unlike(got, want outbox.Message) []string {
	payload := ofPayload(got.Payload, want.Payload)
	for name, value := range want.Headers {
		if has, there := got.Headers[name]; !there || has != value {
			payload = append(payload, fmt.Sprintf("the header %s is %q, want %q", name, has, value))
		}
	}
	slices.Sort(payload)
	same := outbox.Message{ // with the message's own where nothing is wanted, or was compared
		ID: want.ID, Topic: cmp.Or(want.Topic, got.Topic), Key: cmp.Or(want.Key, got.Key), Payload: got.Payload, Headers: got.Headers,
		AvailableAt: cmp.Or(want.AvailableAt, got.AvailableAt), ExpiresAt: cmp.Or(want.ExpiresAt, got.ExpiresAt), Priority: cmp.Or(want.Priority, got.Priority),
	}
	return append(differences(got, same), payload...)
}

// ofPayload compares what the wanted payload has, if it is a JSON object, and else all.
func ofPayload(got, want []byte) []string {
	if want == nil {
		return nil
	}
	wanted, isObject := decoded(want).(map[string]any)
	if !isObject {
		if !bytes.Equal(got, want) {
			return []string{fmt.Sprintf("Payload is %s, want %s", shown(got), shown(want))}
		}
		return nil
	}
	has, isObject := decoded(got).(map[string]any)
	if !isObject {
		return []string{fmt.Sprintf("Payload is %s, want a JSON object", shown(got))}
	}
	return apart("Payload", has, wanted)
}

// decoded is nil for what isn't JSON.
func decoded(text []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // as large ids lose digits as a float64
	if decoder.Decode(&value) != nil || decoder.More() {
		return nil
	}
	return value
}

// apart compares two JSON values, and names where they differ.
func apart(place string, got, want any) (found []string) {
	switch wanted := want.(type) {
	case map[string]any:
		has, isObject := got.(map[string]any)
		if !isObject {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			value, there := has[name]
			if !there {
				found = append(found, fmt.Sprintf("%s.%s is missing, want %s", place, name, text(wanted[name])))
				continue
			}
			found = append(found, apart(place+"."+name, value, wanted[name])...)
		}
		return found
	case []any:
		has, isList := got.([]any)
		if !isList || len(has) != len(wanted) {
			break
		}
		for i := range wanted {
			found = append(found, apart(fmt.Sprintf("%s[%d]", place, i), has[i], wanted[i])...)
		}
		return found
	case json.Number:
		if has, isNumber := got.(json.Number); isNumber && sameNumber(has, wanted) {
			return nil
		}
	default: // a string, true, false, null
		if got == want {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s is %s, want %s", place, text(got), text(want))}
}

// sameNumber also takes 1, 1.0 and 1e0 for the same.
func sameNumber(a, b json.Number) bool {
	one, ok := new(big.Rat).SetString(a.String())
	other, okToo := new(big.Rat).SetString(b.String())
	return a == b || ok && okToo && one.Cmp(other) == 0
}

func text(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
