package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
)

func TestFailedHandlerHasNoEffect(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		in := newInbox(t, db.dialect, "billing", inbox.Options{})
		for name, fail := range map[string]func(*sql.Tx, context.CancelFunc) error{
			"the effect":  func(*sql.Tx, context.CancelFunc) error { return errHandler },
			"the commit":  func(tx *sql.Tx, _ context.CancelFunc) error { return tx.Rollback() },
			"the context": func(_ *sql.Tx, cancel context.CancelFunc) error { cancel(); return nil },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			first, err := in.Do(ctx, db.DB, "a", func(tx *sql.Tx) error {
				return errors.Join(effect(t.Context(), "a")(tx), fail(tx, cancel))
			})
			if err == nil || first {
				t.Errorf("%s fails: %t, %v; want an error", name, first, err)
			}
			cancel()
		}
		panics := func() {
			defer func() { _ = recover() }()
			_, _ = in.Do(t.Context(), db.DB, "a", func(tx *sql.Tx) error {
				check(t, effect(t.Context(), "a")(tx))
				panic("the handler fell over")
			})
		}
		panics()
		if first, err := in.Do(t.Context(), db.DB, "a", effect(t.Context(), "a")); err != nil || !first {
			t.Errorf("after failures: %t, %v; want the first time", first, err)
		}
		if counts := db.effects(t); counts["a"] != 1 {
			t.Errorf("%d effects, want 1", counts["a"])
		}
	})
}

// busy is an error that PostgreSQL's dialect classifies as a deadlock.
type busy struct{}

func (busy) Error() string    { return "deadlock" }
func (busy) SQLState() string { return "40P01" }

func TestDoRetriesWhileTheDatabaseIsBusy(t *testing.T) {
	on(t, testdb.Targets()[:1], func(t *testing.T, db database) {
		in := newInbox(t, db.dialect, "billing", inbox.Options{})
		for id, c := range map[string]struct{ failures, calls int }{"thrice": {3, 4}, "always": {100, 4}} {
			calls := 0
			first, err := in.Do(t.Context(), db.DB, id, func(*sql.Tx) error {
				if calls++; calls <= c.failures {
					return busy{}
				}
				return nil
			})
			if calls != c.calls || first == (id == "always") || errors.Is(err, inbox.ErrBusy) != (id == "always") {
				t.Errorf("%s: %t, %v after %d calls, want %d", id, first, err, calls, c.calls)
			}
		}
	})
}

func TestErrorsSayWhatToDo(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		in := newInbox(t, db.dialect, "billing", inbox.Options{Table: "nothing"})
		for what, err := range map[string]error{
			"Once":  errorOf(in.Once(t.Context(), db.begin(t), "a")),
			"Clean": errorOf(in.Clean(t.Context(), db.DB)),
		} {
			if err == nil || !strings.Contains(err.Error(), "rowrelay migrate up --inbox") || !strings.Contains(err.Error(), "consumer billing") {
				t.Errorf("%s without the table: %v", what, err)
			}
		}
	})
}

func errorOf[T any](_ T, err error) error { return err }

func TestMessagesWithoutAnIDAreRefused(t *testing.T) {
	t.Parallel()
	in := newInbox(t, dialect.SQLite(), "billing", inbox.Options{})
	var nowhere *sql.Tx // no statement is executed
	for _, id := range []string{"", " ", "a ", "\ta", "a\nb", "a\x00b", "\xff", strings.Repeat("i", 256)} {
		if first, err := in.Once(t.Context(), nowhere, id); !errors.Is(err, inbox.ErrInvalid) || first {
			t.Errorf("%.20q: %t, %v; want that it is refused", id, first, err)
		}
	}
}

func TestHandlesThatAreNoTransaction(t *testing.T) {
	t.Parallel()
	in := newInbox(t, dialect.SQLite(), "billing", inbox.Options{})
	if _, err := in.Once(t.Context(), nil, "a"); err == nil || !strings.Contains(err.Error(), "the transaction is nil") {
		t.Errorf("without a transaction: %v", err)
	}
	if _, err := in.Once(t.Context(), &sql.DB{}, "a"); err == nil || !strings.Contains(err.Error(), "pass the *sql.Tx") {
		t.Errorf("with a pool: %v", err)
	}
}
