package outboxdb_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// setNotify creates or drops the trigger of a table.
func (db database) setNotify(t *testing.T, table, notify string) *migrations.Migrations {
	t.Helper()
	m, err := migrations.New(db.DB, db.dialect, migrations.Options{Table: table, Notify: notify})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// heard returns the payloads of the notifications that a channel has received so far.
func (db database) heard(t *testing.T, listener *pgx.Conn, channel string) (payloads []string) {
	t.Helper()
	db.exec(t, "SELECT pg_notify('"+channel+"', 'end')")
	for {
		notification, err := listener.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if notification.Payload == "end" {
			return payloads
		}
		payloads = append(payloads, notification.Payload)
	}
}

const plainInsert = "INSERT INTO outbox (topic) VALUES ('a')"

func TestTheTriggerAnnounces(t *testing.T) {
	others := []string{"ALTER TABLE outbox RENAME TO events", "ALTER TABLE events RENAME TO outbox", "CREATE SCHEMA app", "ALTER TABLE outbox SET SCHEMA app", "ALTER TABLE app.outbox SET SCHEMA public"}
	cases := map[string]struct {
		run     []string // statements, run in one session
		channel string
		want    int
	}{
		"an INSERT":                  {[]string{plainInsert}, "rowrelay_outbox", 1},
		"an INSERT of many rows":     {[]string{"INSERT INTO outbox (topic) SELECT 'a' FROM generate_series(1, 100)"}, "rowrelay_outbox", 1},
		"three transactions":         {[]string{plainInsert, plainInsert, plainInsert}, "rowrelay_outbox", 3},
		"several in a transaction":   {[]string{"BEGIN", plainInsert, "SELECT pg_sleep(0.011)", plainInsert, "COMMIT"}, "rowrelay_outbox", 1},
		"rolled back":                {[]string{"BEGIN", plainInsert, "ROLLBACK"}, "rowrelay_outbox", 0},
		"after a rolled back INSERT": {[]string{"BEGIN", plainInsert, "ROLLBACK", plainInsert}, "rowrelay_outbox", 1},
		"after ROLLBACK TO":          {[]string{"BEGIN", "SAVEPOINT s", plainInsert, "ROLLBACK TO s", plainInsert, "COMMIT"}, "rowrelay_outbox", 1},
		"an empty search_path":       {[]string{"SET search_path = ''", "INSERT INTO public.outbox (topic) VALUES ('a')", "RESET search_path"}, "rowrelay_outbox", 1},
		"a renamed table":            {[]string{others[0], "INSERT INTO events (topic) VALUES ('a')", others[1]}, "rowrelay_events", 1},
		"another schema":             {[]string{others[2], others[3], "INSERT INTO app.outbox (topic) VALUES ('a')", others[4], "DROP SCHEMA app"}, "rowrelay_outbox", 1},
		"a name that is too long": {[]string{"ALTER TABLE outbox RENAME TO " + strings.Repeat("x", 63), "INSERT INTO " + strings.Repeat("x", 63) + " (topic) VALUES ('a')",
			"ALTER TABLE " + strings.Repeat("x", 63) + " RENAME TO outbox"}, "rowrelay_" + strings.Repeat("x", 54), 1},
		"the right to INSERT alone": {[]string{"CREATE ROLE {role}", "GRANT INSERT ON outbox TO {role}", "BEGIN", "SET LOCAL ROLE {role}", plainInsert, "COMMIT", "DROP OWNED BY {role}", "DROP ROLE {role}"}, "rowrelay_outbox", 1},
	}
	onPostgres(t, func(t *testing.T, db database) {
		db.setNotify(t, "outbox", "on")
		session := db.listen(t, "nothing")
		var oid, name string
		if err := session.QueryRow(t.Context(), "SELECT 'outbox'::regclass::oid::text, current_database()").Scan(&oid, &name); err != nil {
			t.Fatal(err)
		}
		for what, c := range cases {
			listener := db.listen(t, c.channel)
			for _, statement := range c.run {
				if _, err := session.Exec(t.Context(), strings.ReplaceAll(statement, "{role}", `"only_`+name+`"`)); err != nil {
					t.Fatalf("%s: %s: %v", what, statement, err)
				}
			}
			got := db.heard(t, listener, c.channel)
			if len(got) != c.want || c.want > 0 && got[0] != oid {
				t.Errorf("%s: notified %q, want %d times with the table's oid, %s", what, got, c.want, oid)
			}
		}
		listener := db.listen(t, "rowrelay_outbox")
		if _, err := session.CopyFrom(t.Context(), pgx.Identifier{"outbox"}, []string{"topic"}, pgx.CopyFromRows([][]any{{"a"}, {"b"}})); err != nil {
			t.Fatal(err)
		}
		if got := db.heard(t, listener, "rowrelay_outbox"); len(got) != 1 {
			t.Errorf("after a COPY: notified %q, want once", got)
		}
		db.setNotify(t, "outbox", "off")
		db.exec(t, plainInsert)
		if got := db.heard(t, listener, "rowrelay_outbox"); len(got) > 0 {
			t.Errorf("without the trigger: notified %q", got)
		}
	})
}

// A transaction writes alternately to two tables. However long the transaction lasts, it holds one
// lock per table and sends one notification per table.
func TestATransactionHoldsOneLockForTheTrigger(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		db.exec(t, "CREATE SCHEMA app")
		db.setNotify(t, "outbox", "on")
		db.setNotify(t, "app.events", "on")
		one, two := db.listen(t, "rowrelay_outbox"), db.listen(t, "rowrelay_events")
		tx := db.begin(t)
		_, err := tx.ExecContext(t.Context(), `DO $$ DECLARE begun CONSTANT timestamptz := clock_timestamp(); BEGIN
			LOOP
				INSERT INTO outbox (topic) VALUES ('a');
				INSERT INTO app.events (topic) VALUES ('a');
				EXIT WHEN clock_timestamp() > begun + interval '60 ms';
			END LOOP;
		END $$`)
		if err != nil {
			t.Fatal(err)
		}
		var locks int
		if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks); err != nil || locks != 2 {
			t.Errorf("the transaction holds %d locks (%v), want one per table", locks, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if a, b := db.heard(t, one, "rowrelay_outbox"), db.heard(t, two, "rowrelay_events"); len(a) != 1 || len(b) != 1 {
			t.Errorf("notified %q and %q, want each once", a, b)
		}
	})
}

// An open transaction that will send a notification at its commit blocks no other transaction.
// After at most a hundredth of a second, other transactions send notifications again.
func TestAnOpenWriterDelaysNoOther(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		db.setNotify(t, "outbox", "on")
		listener := db.listen(t, "rowrelay_outbox")
		tx := db.begin(t)
		if _, err := tx.ExecContext(t.Context(), plainInsert); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			db.exec(t, plainInsert) // returns without waiting for the open transaction
			db.exec(t, "SELECT pg_sleep(0.011)")
		}
		if got := db.heard(t, listener, "rowrelay_outbox"); len(got) == 0 {
			t.Error("nothing was notified while a writer was open")
		}
	})
}

// patience is the longest time that a test waits, even on the slowest machine.
const patience = 5 * time.Minute

// A relay whose polls are an hour apart delivers each plain INSERT.
func TestTheTriggerWakesARelay(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		db.setNotify(t, "outbox", "on")
		arrived := make(chan string, 1)
		deliver := startRelay(t, db, func(m sinks.Message) { arrived <- m.Topic })
		for n := range 20 { // the relay's first polls may find the first messages
			db.exec(t, "INSERT INTO outbox (topic, payload_text) VALUES ('a', 'x')")
			select {
			case <-arrived:
			case err := <-deliver:
				t.Fatalf("the relay ended: %v", err)
			case <-time.After(patience):
				t.Fatalf("message %d: the relay was not woken", n)
			}
		}
	})
}

// startRelay starts a relay that listens and polls only every hour.
func startRelay(t *testing.T, db database, take func(sinks.Message)) (ended <-chan error) {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), db.OpenAnother(t), db.dialect, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := relaypgx.NewListener(db.URL, relaypgx.ListenerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return startListening(t, store, listener, take)
}

func startListening(t *testing.T, store storage.Store, listener relay.Listener, take func(sinks.Message)) (ended <-chan error) {
	t.Helper()
	r, err := relay.New(store, relay.Options{Logger: slog.New(slog.DiscardHandler), Poll: time.Hour, Listener: listener, Sinks: map[string]relay.SinkOptions{
		"handler": {Sink: inproc.Func(func(_ context.Context, m sinks.Message) error { take(m); return nil })},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- r.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return done
}
