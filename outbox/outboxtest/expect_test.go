package outboxtest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

func TestExpectReportsEveryDifference(t *testing.T) {
	t.Parallel()
	full := outbox.Message{ID: "019b7ca9-8f2e-7800-a6fd-4d798f0ddb85", Topic: "orders.paid", Key: "order-42", Payload: []byte("\x00\xff\\"),
		Headers: map[string]string{"a": `"b" \`}, AvailableAt: time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC),
		ExpiresAt: time.Date(2030, 1, 3, 0, 0, 0, 0, time.UTC), Priority: -3}
	for want, change := range map[string]func(*outbox.Message){
		`message 0: ID is `:                             func(m *outbox.Message) { m.ID = outbox.NewID() },
		`message 0: Topic is orders.paid, want other`:   func(m *outbox.Message) { m.Topic = "other" },
		`message 0: Key is order-42, want `:             func(m *outbox.Message) { m.Key = "" },
		`message 0: Payload is "\x00\xff\\", want "a"`:  func(m *outbox.Message) { m.Payload = []byte("a") },
		`message 0: Payload is "\x00\xff\\", want nil`:  func(m *outbox.Message) { m.Payload = nil },
		`message 0: Headers is `:                        func(m *outbox.Message) { m.Headers = nil },
		`message 0: AvailableAt is 2030-01-02 03:04:05`: func(m *outbox.Message) { m.AvailableAt = m.AvailableAt.Add(time.Millisecond) },
		`message 0: AvailableAt is 2030-01-02`:          func(m *outbox.Message) { m.AvailableAt = time.Time{} },
		`message 0: ExpiresAt is 2030-01-03`:            func(m *outbox.Message) { m.ExpiresAt = time.Time{} },
		`message 0: Priority is -3, want 0`:             func(m *outbox.Message) { m.Priority = 0 },
	} {
		wanted := full
		change(&wanted)
		reported := reports(t, func(t testing.TB) { outboxtest.Expect(t, []outbox.Message{full}, wanted) })
		if len(reported) != 1 || !strings.HasPrefix(reported[0], want) {
			t.Errorf("Expect reports %q, want %s…", reported, want)
		}
	}
}

func TestExpectReportsTheNumber(t *testing.T) {
	t.Parallel()
	a, b := outbox.Message{Topic: "a"}, outbox.Message{Topic: "b", Payload: []byte{}}
	for want, reported := range map[string][]string{
		"": reports(t, func(t testing.TB) { outboxtest.Expect(t, []outbox.Message{a, b}, a, b) }),
		`2 messages, want 1; message 1, with Topic "b" and Key "", is not wanted`: reports(t, func(t testing.TB) {
			outboxtest.Expect(t, []outbox.Message{a, b}, a)
		}),
		`1 messages, want 2; message 1, with Topic "b" and Key "", is missing`: reports(t, func(t testing.TB) {
			outboxtest.Expect(t, []outbox.Message{a}, a, b)
		}),
	} {
		if got := strings.Join(reported, "; "); got != want {
			t.Errorf("Expect reports %s, want %s", got, want)
		}
	}
}

// reports returns the texts that a test passes to Errorf.
func reports(t *testing.T, test func(testing.TB)) []string {
	t.Helper()
	noted := &noted{TB: t}
	test(noted)
	return noted.reports
}

type noted struct {
	testing.TB
	reports []string
}

func (n *noted) Errorf(format string, args ...any) {
	n.reports = append(n.reports, fmt.Sprintf(format, args...))
}
