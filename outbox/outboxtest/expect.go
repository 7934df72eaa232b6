package outboxtest

import (
	"bytes"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
)

// Expect fails the test if the messages differ from the wanted ones in number,
// order or any field, and reports each difference. The ID is compared only if the
// wanted message has one. Payloads are compared as bytes, and nil differs from
// empty. Times may differ by less than a millisecond, because databases round them.
func Expect(t testing.TB, got []outbox.Message, want ...outbox.Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d messages, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		for _, difference := range differences(got[i], want[i]) {
			t.Errorf("message %d: %s", i, difference)
		}
	}
	for i := len(want); i < len(got); i++ {
		t.Errorf("message %d, with Topic %q and Key %q, is not wanted", i, got[i].Topic, got[i].Key)
	}
	for i := len(got); i < len(want); i++ {
		t.Errorf("message %d, with Topic %q and Key %q, is missing", i, want[i].Topic, want[i].Key)
	}
}

func differences(got, want outbox.Message) []string {
	var found []string
	for _, field := range []struct {
		name      string
		same      bool
		got, want any
	}{
		{"ID", want.ID == "" || got.ID == want.ID, got.ID, want.ID},
		{"Topic", got.Topic == want.Topic, got.Topic, want.Topic},
		{"Key", got.Key == want.Key, got.Key, want.Key},
		{"Payload", samePayload(got.Payload, want.Payload), shown(got.Payload), shown(want.Payload)},
		{"Headers", maps.Equal(got.Headers, want.Headers), got.Headers, want.Headers},
		{"AvailableAt", sameTime(got.AvailableAt, want.AvailableAt), got.AvailableAt, want.AvailableAt},
		{"ExpiresAt", sameTime(got.ExpiresAt, want.ExpiresAt), got.ExpiresAt, want.ExpiresAt},
		{"Priority", got.Priority == want.Priority, got.Priority, want.Priority},
	} {
		if !field.same {
			found = append(found, fmt.Sprintf("%s is %v, want %v", field.name, field.got, field.want))
		}
	}
	return found
}

func samePayload(got, want []byte) bool {
	return bytes.Equal(got, want) && (got == nil) == (want == nil)
}

func shown(payload []byte) string {
	if payload == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", payload)
}

func sameTime(got, want time.Time) bool {
	return got.IsZero() == want.IsZero() && got.Sub(want).Abs() < time.Millisecond
}
