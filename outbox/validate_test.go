package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

const someID = "019b7ca9-8f2e-7800-a6fd-4d798f0ddb85"

// statements is an Execer without a database that records the statements.
type statements struct {
	queries []dialect.Query
	fail    error
}

func (s *statements) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	s.queries = append(s.queries, dialect.Query{SQL: query, Args: args})
	return nil, s.fail
}

func newWriter(t *testing.T, d dialect.Dialect, options outbox.Options) *outbox.Writer {
	t.Helper()
	writer, err := outbox.NewWriter(d, options)
	if err != nil {
		t.Fatal(err)
	}
	return writer
}

func headers(name, value string) map[string]string { return map[string]string{name: value} }

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		message     outbox.Message
		field, rule string
	}{
		"no topic":                  {outbox.Message{}, "Topic", "must not be empty"},
		"long topic":                {outbox.Message{Topic: long}, "Topic", "must have at most 255 bytes, and has 256"},
		"topic not UTF-8":           {outbox.Message{Topic: "a\xff"}, "Topic", "must be valid UTF-8"},
		"topic with NUL":            {outbox.Message{Topic: "a\x00b"}, "Topic", "must not contain U+0000"},
		"long key":                  {outbox.Message{Topic: "t", Key: long}, "Key", "must have at most 255 bytes"},
		"key not UTF-8":             {outbox.Message{Topic: "t", Key: "\xc0\x80"}, "Key", "must be valid UTF-8"},
		"key with NUL":              {outbox.Message{Topic: "t", Key: "\x00"}, "Key", "must not contain U+0000"},
		"id no UUID":                {outbox.Message{Topic: "t", ID: "42"}, "ID", "must be a UUID"},
		"id of zeros":               {outbox.Message{Topic: "t", ID: "00000000-0000-0000-0000-000000000000"}, "ID", "must be a UUID"},
		"large payload":             {outbox.Message{Topic: "t", Payload: make([]byte, 1<<20+1)}, "Payload", "must have at most 1048576 bytes, and has 1048577"},
		"header without name":       {outbox.Message{Topic: "t", Headers: headers("", "v")}, "Headers", "must not have an empty name"},
		"long header name":          {outbox.Message{Topic: "t", Headers: headers(long, "v")}, "Headers", "must have at most 255 bytes"},
		"header name not UTF-8":     {outbox.Message{Topic: "t", Headers: headers("\xff", "v")}, "Headers", `name "\xff" must be valid UTF-8`},
		"header name with line end": {outbox.Message{Topic: "t", Headers: headers("a\r\nb", "v")}, "Headers", `name "a\r\nb" must not contain control`},
		"reserved header":           {outbox.Message{Topic: "t", Headers: headers("RowRelay-Topic", "v")}, "Headers", `must not begin with rowrelay-`},
		"header value not UTF-8":    {outbox.Message{Topic: "t", Headers: headers("a", "\xff")}, "Headers", `value of "a" must be valid UTF-8`},
		"header value with NUL":     {outbox.Message{Topic: "t", Headers: headers("a", "\x00")}, "Headers", `value of "a" must not contain U+0000`},
		"large headers":             {outbox.Message{Topic: "t", Headers: headers("a", strings.Repeat("v", 16<<10))}, "Headers", "must have at most 16384 bytes"},
		"too early":                 {outbox.Message{Topic: "t", AvailableAt: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)}, "AvailableAt", "years 1970 to 2999"},
		"the year 9999":             {outbox.Message{Topic: "t", ExpiresAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, "ExpiresAt", "years 1970 to 2999"},
		"milliseconds for seconds":  {outbox.Message{Topic: "t", AvailableAt: time.Unix(1_767_322_800_000, 0)}, "AvailableAt", "years 1970 to 2999"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tx := &statements{}
			err := newWriter(t, dialect.Postgres(), outbox.Options{}).Write(t.Context(), tx, outbox.Message{Topic: "fine"}, c.message)
			var invalid *outbox.ValidationError
			if !errors.Is(err, outbox.ErrInvalid) || !errors.As(err, &invalid) {
				t.Fatalf("Write: %v, want a ValidationError", err)
			}
			if invalid.Index != 1 || invalid.Field != c.field || !strings.Contains(invalid.Rule, c.rule) || invalid.ID != c.message.ID {
				t.Errorf("got %+v, want field %s, rule %q", invalid, c.field, c.rule)
			}
			if len(tx.queries) > 0 {
				t.Errorf("%q was sent", tx.queries[0].SQL)
			}
		})
	}
}

func TestWriteAcceptsMessagesAtTheLimits(t *testing.T) {
	t.Parallel()
	name, value := strings.Repeat("n", 255), strings.Repeat("v", 16<<10-255)
	for _, message := range []outbox.Message{
		{Topic: strings.Repeat("ü", 127) + "x", Key: strings.Repeat("k", 255)},
		{Topic: "t", Payload: make([]byte, 1<<20)},
		{Topic: "t", Headers: headers(name, value)},
		{Topic: "t", Headers: headers("rowrelay", "a\r\n\tb")},
		{Topic: "t", ID: strings.ToUpper(someID)},
		{Topic: "t", AvailableAt: time.Unix(0, 0), ExpiresAt: time.Unix(0, 0)},
		{Topic: "t", AvailableAt: time.Date(2999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)},
	} {
		if err := newWriter(t, dialect.SQLite(), outbox.Options{}).Write(t.Context(), &statements{}, message); err != nil {
			t.Error(err)
		}
	}
}

func TestErrorsNameTheMessage(t *testing.T) {
	t.Parallel()
	for want, message := range map[string]outbox.Message{
		"write 2 messages to outbox: message 1: Topic must not be empty": {},
		`write 2 messages to outbox: message 1 (id "` + someID + `"): Payload must have at most 3 bytes, and has 6`: {
			ID: someID, Topic: "t", Key: "secret", Payload: []byte("secret"), Headers: headers("h", "secret")},
		`write 2 messages to outbox: message 1 (id "` + strings.Repeat("i", 64) + `"…): ID must be a UUID such as`: {
			ID: strings.Repeat("i", 1000), Topic: "t"},
	} {
		writer := newWriter(t, dialect.Postgres(), outbox.Options{MaxPayload: 3})
		err := writer.Write(t.Context(), &statements{}, outbox.Message{Topic: "fine"}, message)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Write: %v\nwant   %s", err, want)
		}
	}
}
