package outboxdb_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

var everyField = []outbox.Message{
	{ID: someID, Topic: "orders.paid", Key: "order-42", Payload: []byte("\x00\xff\\"),
		Headers: map[string]string{"a": `"b" \`}, AvailableAt: time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC),
		ExpiresAt: time.Date(2030, 1, 3, 0, 0, 0, 0, time.UTC), Priority: -3},
	{Topic: "nothing"},
	{Topic: "empty", Payload: []byte{}},
}

func TestMessagesReturnsTheWrittenMessages(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Each() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t, target, "outbox")
			tx, err := db.DB.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			writer, err := outbox.NewWriter(db.dialect, outbox.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := writer.Write(t.Context(), tx, everyField...); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), `INSERT INTO outbox (topic, payload_text) VALUES ('text', 'a/b')`); err != nil {
				t.Fatal(err)
			}
			want := append(everyField[:3:3], outbox.Message{Topic: "text", Payload: []byte(`a/b`)})
			outboxtest.Expect(t, outboxtest.Messages(t, tx, db.dialect, "outbox"), want...)
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			outboxtest.Expect(t, outboxtest.Messages(t, db.DB, db.dialect, "outbox"))
		})
	}
}

func TestMessagesOfAMissingTable(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Each() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t, target, "outbox")
			for _, table := range []string{"other", "out;box"} {
				reported := fatal(t, func(t testing.TB) { outboxtest.Messages(t, db.DB, db.dialect, table) })
				if !strings.Contains(reported, "read the messages in "+table) {
					t.Errorf("Messages in %s reports %q", table, reported)
				}
			}
		})
	}
}

// fatal runs a function that must call Fatalf, and returns the text that it passes.
func fatal(t *testing.T, test func(testing.TB)) string {
	t.Helper()
	ended := &ended{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(ended)
	}()
	<-done
	return ended.by
}

type ended struct {
	testing.TB
	by string
}

func (e *ended) Fatalf(format string, args ...any) {
	e.by = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
