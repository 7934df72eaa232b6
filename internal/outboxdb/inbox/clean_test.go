package inbox_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
)

// ago returns an SQL expression for a time in the past on the database's clock, in the
// column's format.
func ago(kind string, by time.Duration) string {
	seconds := int(by.Seconds())
	switch kind {
	case testdb.Postgres:
		return fmt.Sprintf("now() - interval '%d seconds'", seconds)
	case testdb.SQLite:
		return fmt.Sprintf("strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-%d seconds')", seconds)
	case testdb.SQLServer:
		return fmt.Sprintf("DATEADD(SECOND, -%d, SYSUTCDATETIME())", seconds)
	case testdb.Oracle:
		return fmt.Sprintf("SYS_EXTRACT_UTC(SYSTIMESTAMP) - NUMTODSINTERVAL(%d, 'SECOND')", seconds)
	default:
		return fmt.Sprintf("utc_timestamp(6) - INTERVAL %d SECOND", seconds)
	}
}

// age changes the time at which an id was received, so the id looks older.
func (db database) age(t *testing.T, id string, by time.Duration) {
	t.Helper()
	_, err := db.DB.ExecContext(t.Context(), "UPDATE inbox SET received_at = "+ago(db.Kind, by)+" WHERE message_id = '"+id+"'")
	check(t, err)
}

func TestCleanKeepsToTheWindow(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		const window = 48 * time.Hour
		in, other := newInbox(t, db.dialect, "billing", inbox.Options{Window: window}), newInbox(t, db.dialect, "stock", inbox.Options{})
		for id, age := range map[string]time.Duration{"old": window + time.Minute, "just": window - time.Minute, "new": 0} {
			for _, each := range []*inbox.Inbox{in, other} {
				if _, err := each.Do(t.Context(), db.DB, id, effect(t.Context(), id)); err != nil {
					t.Fatal(err)
				}
			}
			if age > 0 {
				db.age(t, id, age)
			}
		}
		for _, want := range []int64{1, 0} {
			if deleted, err := in.Clean(t.Context(), db.DB); err != nil || deleted != want {
				t.Errorf("Clean = %d, %v; want %d", deleted, err, want)
			}
		}
		for id, gone := range map[string]bool{"old": true, "just": false, "new": false} {
			if isNew := db.isNew(t, in, id); isNew != gone {
				t.Errorf("%s is new: %t, want %t", id, isNew, gone)
			}
			if db.isNew(t, other, id) {
				t.Errorf("%s of another consumer, whose window is longer, was deleted", id)
			}
		}
	})
}

// isNew reports whether an id is new. It receives the message and rolls back.
func (db database) isNew(t *testing.T, in *inbox.Inbox, id string) bool {
	t.Helper()
	tx := db.begin(t)
	defer func() { _ = tx.Rollback() }()
	first, err := in.Once(t.Context(), tx, id)
	check(t, err)
	return first
}

// Clean deletes many ids in several steps. Several processes may call Clean concurrently,
// while consumers receive messages.
func TestCleanInParts(t *testing.T) {
	const old = 2500
	onEach(t, func(t *testing.T, db database) {
		for from := 0; from < old; from += 500 {
			db.insertOld(t, from, 500)
		}
		in := newInbox(t, db.dialect, "billing", inbox.Options{})
		var group sync.WaitGroup
		var mu sync.Mutex
		var total int64
		for range 3 {
			pool := db.OpenAnother(t)
			group.Go(func() {
				deleted := cleanAll(t, in, database{testdb.Database{DB: pool}, db.dialect})
				mu.Lock()
				defer mu.Unlock()
				total += deleted
			})
		}
		for m := range 20 {
			if !deliver(t, in, db.DB, fmt.Sprint("message-", m), false) {
				t.Errorf("message %d was there before", m)
			}
		}
		group.Wait()
		if total += cleanAll(t, in, db); total != old {
			t.Errorf("%d ids were deleted, want %d", total, old)
		}
		if first := deliver(t, in, db.DB, "message-0", false); first {
			t.Error("a new id was deleted")
		}
	})
}

// cleanAll calls Clean, and repeats the call while the database is busy.
func cleanAll(t *testing.T, in *inbox.Inbox, db database) (total int64) {
	for range 100 {
		deleted, err := in.Clean(t.Context(), db.DB)
		total += deleted
		if err == nil {
			return total
		}
		if !db.dialect.Busy(err) {
			t.Errorf("Clean: %v", err)
			return total
		}
	}
	t.Error("Clean was busy 100 times")
	return total
}

func (db database) insertOld(t *testing.T, from, count int) {
	t.Helper()
	head, separator, tail := "INSERT INTO inbox (consumer, message_id, received_at) VALUES ", ", ", ""
	if db.Kind == testdb.Oracle {
		head, separator, tail = "INSERT ALL ", " ", " SELECT 1 FROM dual"
	}
	var values []string
	for n := range count {
		value := fmt.Sprintf("('billing', 'old-%d', %s)", from+n, ago(db.Kind, 30*24*time.Hour))
		if db.Kind == testdb.Oracle {
			value = "INTO inbox (consumer, message_id, received_at) VALUES " + value
		}
		values = append(values, value)
	}
	_, err := db.DB.ExecContext(t.Context(), head+strings.Join(values, separator)+tail)
	check(t, err)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		consumer string
		options  inbox.Options
		want     []string // empty: the options are accepted
	}{
		"the least":       {"b", inbox.Options{Window: time.Hour}, nil},
		"the longest":     {strings.Repeat("b", 100), inbox.Options{Window: 87600 * time.Hour}, nil},
		"no consumer":     {"", inbox.Options{}, []string{"the consumer's name must not be empty"}},
		"a long name":     {strings.Repeat("b", 101), inbox.Options{}, []string{"at most 100 bytes"}},
		"a short window":  {"b", inbox.Options{Window: time.Hour - 1}, []string{"the option Window must be between 1h0m0s"}},
		"a long window":   {"b", inbox.Options{Window: 87600*time.Hour + 1}, []string{"Window"}},
		"all is wrong":    {"b ", inbox.Options{Table: "a b", Window: -1}, []string{"white space", `table "a b"`, "Window"}},
		"a schema's name": {"b", inbox.Options{Table: "a.b.c"}, []string{`table "a.b.c"`}},
	} {
		_, err := inbox.New(dialect.Postgres(), c.consumer, c.options)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", name, err, want)
			}
		}
	}
	if _, err := inbox.New(nil, "b", inbox.Options{}); err == nil || !strings.Contains(err.Error(), "the dialect is nil") {
		t.Errorf("without a dialect: %v", err)
	}
}
