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

// ExpectAmong fails the test for each wanted message that matches none of the written
// messages, and reports how the closest one differs. Empty fields of a wanted message aren't
// compared. The written Headers, and a written Payload that is a JSON object, may have more
// members than the wanted ones, at any depth:
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

// missing returns "" if a written message matches the wanted one, and otherwise a text that
// reports the differences.
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
		return fmt.Sprintf("no message has Topic %q; the written topics are %q", want.Topic, slices.Sorted(maps.Keys(topics)))
	}
	return fmt.Sprintf("no message matches the wanted one with %s; message %d, the closest of %d, differs:\n\t%s", named(want), nearest, len(got), strings.Join(fewest, "\n\t"))
}

func named(m outbox.Message) string { return fmt.Sprintf("Topic %q and Key %q", m.Topic, m.Key) }

// unlike returns a description of each difference between a message and the wanted one.
func unlike(got, want outbox.Message) []string {
	payload := ofPayload(got.Payload, want.Payload)
	for name, value := range want.Headers {
		if has, there := got.Headers[name]; !there || has != value {
			payload = append(payload, fmt.Sprintf("the header %s is %q, want %q", name, has, value))
		}
	}
	slices.Sort(payload)
	same := outbox.Message{ // fields that are empty in want, or have been compared, get the written message's values
		ID: want.ID, Topic: cmp.Or(want.Topic, got.Topic), Key: cmp.Or(want.Key, got.Key), Payload: got.Payload, Headers: got.Headers,
		AvailableAt: cmp.Or(want.AvailableAt, got.AvailableAt), ExpiresAt: cmp.Or(want.ExpiresAt, got.ExpiresAt), Priority: cmp.Or(want.Priority, got.Priority),
	}
	return append(differences(got, same), payload...)
}

// ofPayload compares only the members of the wanted payload if that payload is a JSON
// object. Otherwise it compares all bytes.
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

// decoded returns the JSON value in the text, or nil if the text isn't JSON.
func decoded(text []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // because a large id would lose digits as a float64
	if decoder.Decode(&value) != nil || decoder.More() {
		return nil
	}
	return value
}

// apart compares two JSON values and returns a description of each difference.
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

// sameNumber reports whether two numbers are equal: 1, 1.0 and 1e0 are equal.
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
