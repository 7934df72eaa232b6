package storage_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

func numbered(count int, answer string) (log []storage.Attempt) {
	at := time.Date(2026, 1, 31, 23, 59, 59, 987_654_321, time.FixedZone("abroad", 3600))
	for i := range count {
		log = append(log, storage.Attempt{At: at, Relay: "host-1-abcdef", Sink: "kafka", Answer: answer, DurationMS: int64(i)})
	}
	return log
}

func TestAttemptLogKeepsTheLastAttempts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		count  int
		answer string
		least  int // how many attempts the log must have
	}{
		"nothing":               {0, "", 0},
		"few":                   {3, "refused", 3},
		"many":                  {50, "500: the server is on fire, come back later", 20},
		"long answers":          {50, strings.Repeat("x", 1000), 15},
		"letters as escapes":    {50, strings.Repeat("ü", 500), 4},
		"control characters":    {5, strings.Repeat("\x01", 1000), 1},
		"characters of 4 bytes": {5, strings.Repeat("𝄞", 250), 1},
		"invalid UTF-8":         {2, "\xff\xfe", 2},
		"NUL":                   {2, "a\x00b", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log storage.AttemptLog
			for _, attempt := range numbered(test.count, test.answer) {
				log = log.With(attempt)
			}
			text := log.Text()
			if len(log) < test.least || len(log) > storage.MostAttempts || len(text) > storage.MostAttemptLog {
				t.Errorf("the log has %d attempts and %d bytes, want at least %d attempts, and at most %d and %d bytes", len(log), len(text), test.least, storage.MostAttempts, storage.MostAttemptLog)
			}
			if test.count > 0 && (!json.Valid([]byte(text)) || log[len(log)-1].DurationMS != int64(test.count-1)) {
				t.Errorf("the log is %s, want valid JSON that ends with attempt %d", text, test.count-1)
			}
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) || strings.Contains(text, `\u0000`) {
				t.Errorf("the text is not printable ASCII, or has an escaped NUL: %q", text)
			}
			if read := storage.ParseAttemptLog(text); !slices.Equal(read, log) && name != "invalid UTF-8" {
				t.Errorf("read %+v, want %+v", read, log)
			}
		})
	}
}

// An attempt log that was changed by hand must not make a message unreadable.
func TestParseAttemptLogIgnoresOtherTexts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "nonsense", "{}", `[{"at": 5}]`, `[1]`, "null"} {
		if log := storage.ParseAttemptLog(text); len(log) > 0 {
			t.Errorf("%q: %+v, want nothing", text, log)
		}
	}
}

// With must not change the log of the message that it was called on.
func TestAttemptLogWithChangesNoOther(t *testing.T) {
	t.Parallel()
	log := storage.AttemptLog(numbered(19, strings.Repeat("x", 150)))
	log.With(numbered(5, strings.Repeat("y", 1000))...)
	if len(log) != 19 || log[0].Answer != strings.Repeat("x", 150) {
		t.Errorf("With changed its log to %+v", log)
	}
}
