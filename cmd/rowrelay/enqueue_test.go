package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

func TestBatchWithAnInvalidLineIsNotWritten(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		good := strings.Repeat(`{"topic":"a"}`+"\n", 4)
		for name, test := range map[string]struct {
			input, want string
			written     int64
		}{
			"the first line doesn't parse":         {"{\n" + good, "line 1 isn't valid JSON", 0},
			"a later line doesn't parse":           {good + "\n{\"topic\":1}\n", "line 6 topic must be a string\n  no line of this batch was written; 3 messages were written before it", 3},
			"a line breaks a rule":                 {good + `{"topic":""}`, "line 5: topic must not be empty", 3},
			"a line with an id that isn't one":     {good + `{"topic":"a","message_id":"1"}`, "line 5: message_id must be a UUID", 3},
			"a payload over the limit":             {good + `{"topic":"a","payload":"` + strings.Repeat("x", 1<<20+1) + `"}`, "line 5: payload must have at most 1048576 bytes", 3},
			"a line over all limits":               {good + strings.Repeat("x", 8<<20), "line 5 has more than", 3},
			"the last batch is whole, then a blot": {good + `{"topic":"a"}` + "\n" + `{"topic":"a"}` + "\n}", "line 7 isn't a JSON object", 6},
			"U+0000 in a key":                      {`{"topic":"a","key":"a\u0000b"}`, "line 1: key must not contain U+0000", 0},
			"a reserved header":                    {`{"topic":"a","headers":{"rowrelay-x":"y"}}`, "line 1: headers name", 0},
		} {
			t.Run(name, func(t *testing.T) {
				before := statusOf(t, db).Pending
				got := call(t.Context(), test.input, "enqueue", "--database", db.URL, "--batch", "3")
				if got.code != exitFailed || !strings.Contains(got.stderr, test.want) || got.stdout != "" {
					t.Errorf("exit code %d, %q %q; want 1 and %q", got.code, got.stdout, got.stderr, test.want)
				}
				if written := statusOf(t, db).Pending - before; written != test.written {
					t.Errorf("%d messages were written, want %d", written, test.written)
				}
			})
		}
	})
}

// The flags set the expires_at of lines that have none.
func TestEnqueuedMessagesExpire(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		const input = `{"topic":"a"}` + "\n" + `{"topic":"b","expires_at":"2026-01-31T12:00:00Z"}`
		for _, flags := range [][]string{nil, {"--expires-at", "2030-01-31T12:00:00+01:00"}, {"--expire-after", "90m"}} {
			mustCall(t, input, append([]string{"enqueue", "--database", db.URL}, flags...)...)
		}
		var listed []struct {
			Topic     string
			ExpiresAt time.Time `json:"expires_at"`
		}
		if err := json.Unmarshal([]byte(mustCall(t, "", "messages", "list", "--json", "--database", db.URL).stdout), &listed); err != nil || len(listed) != 6 {
			t.Fatalf("listed %v, %v; want 6", listed, err)
		}
		soon := time.Now().Add(90 * time.Minute)
		for i, want := range []time.Time{{}, time.Date(2030, 1, 31, 11, 0, 0, 0, time.UTC), soon} {
			if got := listed[2*i].ExpiresAt; got.IsZero() != want.IsZero() || got.Sub(want).Abs() > time.Minute {
				t.Errorf("message %d expires at %v, want %v", 2*i, got, want)
			}
			if got := listed[2*i+1].ExpiresAt; !got.Equal(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)) {
				t.Errorf("message %d expires at %v, not at its own time", 2*i+1, got)
			}
		}
	})
	for want, flags := range map[string][]string{
		"can't be given together": {"--expires-at", "2030-01-31T12:00:00Z", "--expire-after", "1h"},
		"isn't a time":            {"--expires-at", "tomorrow"},
		"--expire-after: ":        {"--expire-after", "soon"},
	} {
		if got := call(t.Context(), "", append([]string{"enqueue", "--database", "sqlite:nowhere.db"}, flags...)...); got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%v: %d, %q; want %q", flags, got.code, got.stderr, want)
		}
	}
}

func TestEnqueueCounts(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		for input, want := range map[string]string{
			"":                              "0 messages written\n",
			"\n\n":                          "0 messages written\n",
			`{"topic":"a"}`:                 "1 message written\n",
			jsonLines("a", 1234, 3) + "\n ": "1234 messages written\n",
		} {
			if got := mustCall(t, input, "enqueue", "--database", db.URL); got.stdout != want {
				t.Errorf("stdout is %q, want %q", got.stdout, want)
			}
		}
		if got := mustCall(t, jsonLines("a", 7, 3), "enqueue", "--database", db.URL, "--json", "--batch", "1"); got.stdout != "{\n  \"written\": 7\n}\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
		if got := statusOf(t, db); got.Pending != 1242 {
			t.Errorf("the status is %+v", got)
		}
	})
}

func TestEnqueuedMessagesAreDeliveredUnchanged(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		const input = `{"message_id":"019e2f6c-7c4b-7d5e-8a90-1b2c3d4e5f60","topic":"ä","key":"k\\'","payload":"line\nbreak \"quoted\" \\x41 😀","headers":{"X-A":"ü"},"priority":-7}
{"topic":"b","payload_base64":"AP/+XA=="}
{"topic":"c","payload":null}
{"topic":"d","payload":""}
`
		mustCall(t, input, "enqueue", "--database", db.URL)
		first := mustRun(t, "run", "--database", db.URL, "--sink", "stdout:", "--drain", "--retention", "0").stdout
		for _, want := range []string{
			`{"message_id":"019e2f6c-7c4b-7d5e-8a90-1b2c3d4e5f60","topic":"ä","key":"k\\'","payload":"line\nbreak \"quoted\" \\x41 😀","headers":{"X-A":"ü"},"priority":-7,`,
			`"topic":"b","payload_base64":"AP/+XA==",`, `"topic":"c","payload":null,`, `"topic":"d","payload":"",`,
		} {
			if !strings.Contains(first, want) {
				t.Errorf("%s isn't in\n%s", want, first)
			}
		}
		mustCall(t, first, "enqueue", "--database", db.URL) // the lines that the sink has written can be enqueued again
		if got := statusOf(t, db); got.Pending != 4 || got.Done != 0 {
			t.Errorf("the status is %+v", got)
		}
	})
}

// broken is a reader that ends with an error.
type broken struct{ io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("the pipe broke")
	}
	return n, err
}

func TestEnqueueFailsIfItsInputFails(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		var stdout, stderr strings.Builder
		p := program{stdin: broken{strings.NewReader("{\"topic\":\"a\"}\n{\"top")}, stdout: &stdout, stderr: &stderr}
		if code := p.run(t.Context(), []string{"enqueue", "--database", db.URL}); code != exitFailed || !strings.Contains(stderr.String(), "read line 2: the pipe broke") {
			t.Errorf("exit code %d, %q", code, &stderr)
		}
		if got := statusOf(t, db); got.Pending != 0 {
			t.Errorf("the status is %+v, want nothing of the batch", got)
		}
	})
}

func TestInterruptedBatchIsNotWritten(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got := call(ctx, `{"topic":"a"}`, "enqueue", "--database", db.URL); got.code != exitInterrupted || !strings.Contains(got.stderr, "interrupted") {
			t.Errorf("exit code %d, %q", got.code, got.stderr)
		}
		if got := statusOf(t, db); got.Pending != 0 {
			t.Errorf("the status is %+v", got)
		}
	})
}
