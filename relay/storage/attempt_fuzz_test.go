package storage

import (
	"reflect"
	"testing"
	"time"
)

// Whatever the column attempt_log contains, another attempt can be added, and the result fits into the column and can be read.
func FuzzAttemptLog(f *testing.F) {
	f.Add("", "relay-1", "kafka", "timeout: no answer", int64(1e18), int64(1000))
	f.Add(`[{"at":"2026-01-02T03:04:05Z","relay":"r","answer":"a","duration_ms":1}]`, "", "", "\x00\xff😀\u2028", int64(-1), int64(-1))
	f.Add(`[{"at":"9999-12-31T23:59:59.999-23:59"},null,{}]`, "r", "s", "a", int64(0), int64(0))
	f.Add(`{"at":1}`, "r", "s", "a", int64(1<<62), int64(0))
	f.Fuzz(func(t *testing.T, stored, relay, sink, answer string, nanos, duration int64) {
		log := ParseAttemptLog(stored).With(Attempt{At: time.Unix(0, nanos), Relay: relay, Sink: sink, Answer: answer, DurationMS: duration})
		text := log.Text()
		if len(log) == 0 || len(log) > MostAttempts || len(text) > MostAttemptLog {
			t.Fatalf("%d attempts of %d bytes", len(log), len(text))
		}
		for _, c := range []byte(text) {
			if c < ' ' || c > '~' {
				t.Fatalf("the text is not printable ASCII: %q", text)
			}
		}
		again := ParseAttemptLog(text)
		if text == "" || len(again) != len(log) || !reflect.DeepEqual(ParseAttemptLog(again.Text()), again) {
			t.Fatalf("%q is read as %+v, want %+v", text, again, log)
		}
	})
}
