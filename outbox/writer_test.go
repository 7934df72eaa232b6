package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func TestNewWriterRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dialect dialect.Dialect
		options outbox.Options
		want    []string
	}{
		"no dialect":       {nil, outbox.Options{}, []string{"from package dialect"}},
		"bad table":        {dialect.SQLite(), outbox.Options{Table: "out;box"}, []string{`Table: table "out;box"`, "letters"}},
		"bad payload":      {dialect.SQLite(), outbox.Options{MaxPayload: -1}, []string{"MaxPayload: must be between 1 and 268435456 bytes, and is -1"}},
		"payload too high": {dialect.SQLite(), outbox.Options{MaxPayload: 1 << 30}, []string{"MaxPayload"}},
		"negative":         {dialect.Postgres(), outbox.Options{Notify: true, NotifyInterval: -time.Second}, []string{"NotifyInterval", "-1s"}},
		"an interval only": {dialect.Postgres(), outbox.Options{NotifyInterval: time.Second}, []string{"NotifyInterval: has no effect without Notify"}},
		"no notifications": {dialect.SQLite(), outbox.Options{Notify: true}, []string{"Notify: sqlite has no notifications"}},
		"two mistakes":     {dialect.SQLite(), outbox.Options{Table: "a b", MaxPayload: -1}, []string{"Table", "MaxPayload"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writer, err := outbox.NewWriter(c.dialect, c.options)
			if err == nil || writer != nil {
				t.Fatalf("NewWriter = %v, %v; want an error", writer, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("NewWriter: %v; want %q in it", err, want)
				}
			}
		})
	}
}

func TestWriteWithoutMessagesDoesNothing(t *testing.T) {
	t.Parallel()
	tx := &statements{}
	if err := newWriter(t, dialect.Postgres(), outbox.Options{Notify: true}).Write(t.Context(), tx); err != nil || len(tx.queries) > 0 {
		t.Errorf("Write: %v, %v", err, tx.queries)
	}
}

func TestWriteIsOneStatement(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect.Dialect{dialect.Postgres(), dialect.SQLite()} {
		for _, count := range []int{1, 20, 21, 1000} {
			tx := &statements{}
			messages := make([]outbox.Message, count)
			for i := range messages {
				messages[i].Topic = "t"
			}
			if err := newWriter(t, d, outbox.Options{}).Write(t.Context(), tx, messages...); err != nil {
				t.Fatal(err)
			}
			if len(tx.queries) != 1 {
				t.Errorf("%s: %d messages in %d statements", d.Name(), count, len(tx.queries))
			}
		}
	}
}

func TestKeysAreLockedBeforeTheInsert(t *testing.T) {
	t.Parallel()
	tx := &statements{}
	writer := newWriter(t, dialect.Postgres(), outbox.Options{KeyLocks: true, Notify: true, Table: "app.outbox"})
	err := writer.Write(t.Context(), tx, outbox.Message{Topic: "t", Key: "b"}, outbox.Message{Topic: "t"},
		outbox.Message{Topic: "t", Key: `a"\`}, outbox.Message{Topic: "t", Key: "b"})
	if err != nil {
		t.Fatal(err)
	}
	wants := []string{"SELECT pg_advisory_xact_lock", "INSERT INTO app.outbox ", "SELECT pg_notify('rowrelay_outbox', "}
	if len(tx.queries) != len(wants) {
		t.Fatalf("%d statements, want %d", len(tx.queries), len(wants))
	}
	for i, want := range wants {
		if !strings.HasPrefix(tx.queries[i].SQL, want) {
			t.Errorf("statement %d is %s, want %s…", i, tx.queries[i].SQL, want)
		}
	}
	if keys := tx.queries[0].Args[0]; keys != `{"b","a\"\\"}` {
		t.Errorf("locked %s", keys)
	}
}

func TestMessagesWithoutKeysTakeNoLocks(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect.Dialect{dialect.Postgres(), dialect.SQLite()} {
		tx := &statements{}
		if err := newWriter(t, d, outbox.Options{KeyLocks: true}).Write(t.Context(), tx, outbox.Message{Topic: "t"}); err != nil || len(tx.queries) != 1 {
			t.Errorf("%s: %v, %d statements, want only the insert", d.Name(), err, len(tx.queries))
		}
	}
}

func TestNotificationsAreLimited(t *testing.T) {
	t.Parallel()
	tx := &statements{}
	writer := newWriter(t, dialect.Postgres(), outbox.Options{Notify: true, NotifyInterval: time.Hour})
	for range 3 {
		if err := writer.Write(t.Context(), tx, outbox.Message{Topic: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(tx.queries) != 4 {
		t.Errorf("%d statements, want three inserts and one notification", len(tx.queries))
	}
}

func TestAFailedInsertDoesNotUseUpTheNotification(t *testing.T) {
	t.Parallel()
	writer := newWriter(t, dialect.Postgres(), outbox.Options{Notify: true, NotifyInterval: time.Hour})
	broken := errors.New("broken")
	if err := writer.Write(t.Context(), &statements{fail: broken}, outbox.Message{Topic: "t"}); !errors.Is(err, broken) {
		t.Fatalf("Write: %v, want %v", err, broken)
	}
	tx := &statements{}
	if err := writer.Write(t.Context(), tx, outbox.Message{Topic: "t"}); err != nil || len(tx.queries) != 2 {
		t.Errorf("Write: %v, %d statements, want the insert and the notification", err, len(tx.queries))
	}
}

func TestDatabaseErrorsAreWrapped(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for want, count := range map[string]int{"write 1 message to outbox: broken": 1, "write 3 messages to outbox: broken": 3} {
		messages := []outbox.Message{{Topic: "t"}, {Topic: "t"}, {Topic: "t"}}[:count]
		err := newWriter(t, dialect.SQLite(), outbox.Options{}).Write(t.Context(), &statements{fail: broken}, messages...)
		if !errors.Is(err, broken) || err.Error() != want {
			t.Errorf("Write: %v, want %s", err, want)
		}
	}
	if err := newWriter(t, dialect.SQLite(), outbox.Options{}).Write(t.Context(), nil, outbox.Message{Topic: "t"}); err == nil || !strings.Contains(err.Error(), "the transaction is nil") {
		t.Errorf("Write without a transaction: %v", err)
	}
}

func TestMissingIDsAreGeneratedAndGivenIDsKept(t *testing.T) {
	t.Parallel()
	tx := &statements{}
	writer := newWriter(t, dialect.SQLite(), outbox.Options{NewID: func() string { return someID }})
	own := "019B7CA9-8F2E-7800-A6FD-FFFFFFFFFFFF"
	if err := writer.Write(t.Context(), tx, outbox.Message{Topic: "t"}, outbox.Message{Topic: "t", ID: own}); err != nil {
		t.Fatal(err)
	}
	args := tx.queries[0].Args
	if args[0] != someID || args[len(args)/2] != strings.ToLower(own) {
		t.Errorf("the ids are %v and %v", args[0], args[len(args)/2])
	}
}

// Write must not change the messages that the application passes.
func TestWriteChangesNoMessage(t *testing.T) {
	t.Parallel()
	messages := []outbox.Message{{Topic: "t", Payload: []byte("p"), Headers: headers("a", "b")}}
	if err := newWriter(t, dialect.SQLite(), outbox.Options{}).Write(t.Context(), &statements{}, messages...); err != nil {
		t.Fatal(err)
	}
	if m := messages[0]; m.ID != "" || string(m.Payload) != "p" || len(m.Headers) != 1 {
		t.Errorf("the message is now %+v", m)
	}
}
