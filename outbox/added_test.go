package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

type traceKey struct{}

// Write adds the headers that Options.Headers returns for its context, but keeps a message's own header of the same name.
func TestWriteAddsHeadersFromContext(t *testing.T) {
	t.Parallel()
	writer := newWriter(t, dialect.SQLite(), outbox.Options{Headers: func(ctx context.Context) map[string]string {
		trace, _ := ctx.Value(traceKey{}).(string)
		if trace == "" {
			return nil
		}
		return headers("traceparent", trace)
	}})
	traced := context.WithValue(t.Context(), traceKey{}, "00-ab")
	for name, c := range map[string]struct {
		ctx  context.Context
		own  map[string]string
		want string
	}{
		"none":         {t.Context(), headers("a", "b"), `{"a":"b"}`},
		"added":        {traced, headers("a", "b"), `{"a":"b","traceparent":"00-ab"}`},
		"alone":        {traced, nil, `{"traceparent":"00-ab"}`},
		"its own wins": {traced, headers("traceparent", "00-cd"), `{"traceparent":"00-cd"}`},
	} {
		tx, m := &statements{}, outbox.Message{Topic: "t", Headers: c.own}
		if err := writer.Write(c.ctx, tx, m); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, arg := range tx.queries[0].Args {
			found = found || arg == c.want
		}
		if !found {
			t.Errorf("%s: the headers %s are not among %v", name, c.want, tx.queries[0].Args)
		}
		if len(c.own) > 1 || len(m.Headers) != len(c.own) {
			t.Errorf("%s: Write changed the message: %v", name, m.Headers)
		}
	}
	if err := writer.Write(context.WithValue(t.Context(), traceKey{}, "\x00"), &statements{}, outbox.Message{Topic: "t"}); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("a header that can't be stored: %v", err)
	}
}
