package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// deliveries counts how often each message was handled.
type deliveries struct {
	mu    sync.Mutex
	times map[string]int
	total int
}

func (d *deliveries) handle(_ context.Context, m sinks.Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.times[m.ID]++
	d.total++
	return nil
}

// logged keeps the lines of a log. It closes the channel found when a line contains the text in the field words.
type logged struct {
	words string
	found chan struct{}

	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.words != "" && strings.Contains(string(p), l.words) {
		close(l.found)
		l.words = ""
	}
	return l.text.Write(p)
}

func (l *logged) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// refuseBad makes the database refuse to insert messages of the topic bad into outbox_done.
func refuseBad(t *testing.T, table table) {
	switch table.Kind {
	case testdb.SQLite:
		exec(t, table.DB, "CREATE TRIGGER no_bad BEFORE INSERT ON outbox_done WHEN NEW.topic = 'bad' BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: no_bad'); END")
	default:
		exec(t, table.DB, "ALTER TABLE outbox_done ADD CONSTRAINT no_bad CHECK (topic <> 'bad')")
	}
}

// If the database refuses to store some delivered messages in outbox_done, the relay deletes their rows instead, and marks the other
// messages as delivered. No message is sent twice, not even by the next relay.
func TestRefusedRowsDelayNoOthersAndAreNotSentAgain(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		refuseBad(t, table)
		for i := range 60 {
			topic := "good"
			if i%20 == 7 {
				topic = "bad"
			}
			exec(t, table.DB, fmt.Sprintf("INSERT INTO outbox (topic, message_key) VALUES ('%s', 'k%d')", topic, i))
		}
		store, handled, log := table.open(t), &deliveries{times: map[string]int{}}, &logged{}
		for range 2 {
			r, err := relay.New(store, relay.Options{
				Drain: true, Logger: slog.New(slog.NewTextHandler(log, nil)), Sinks: map[string]relay.SinkOptions{"main": {Sink: inproc.Func(handled.handle)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(t.Context()); err != nil {
				t.Errorf("drain: %v", err)
			}
		}
		if len(handled.times) != 60 || handled.total != 60 {
			t.Errorf("%d deliveries of %d messages, want 60 of 60", handled.total, len(handled.times))
		}
		status, err := store.Status(t.Context())
		if err != nil || status.Counts[storage.StateDone] != 57 || status.Counts[storage.StatePending] != 0 {
			t.Errorf("the status is %v, %v; want 57 done and none pending", status.Counts, err)
		}
		if n := log.count("deleting its row"); n != 3 {
			t.Errorf("%d log lines report a deleted row, want 3", n)
		}
	})
}

// If the database refuses to mark a message as delivered in its handler's transaction, the relay parks the message without calling the
// handler. The sink stays available.
func TestRowsThatAHandlersTransactionCannotMarkAreParked(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		refuseBad(t, table)
		for i := range 20 {
			topic := "good"
			if i%10 == 3 {
				topic = "bad"
			}
			exec(t, table.DB, fmt.Sprintf("INSERT INTO outbox (topic, message_key) VALUES ('%s', 'k%d')", topic, i))
		}
		store, handled, log := table.open(t), &deliveries{times: map[string]int{}}, &logged{}
		r, err := relay.New(store, relay.Options{
			Drain: true, Logger: slog.New(slog.NewTextHandler(log, nil)),
			Sinks: map[string]relay.SinkOptions{"main": {JudgeAloneAfter: relay.JudgeAtOnce, Sink: inproc.Tx(func(ctx context.Context, _ *sql.Tx, m sinks.Message) error { return handled.handle(ctx, m) })}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err != nil {
			t.Errorf("drain: %v", err)
		}
		status, err := store.Status(t.Context())
		if err != nil || status.Counts[storage.StateDone] != 18 || status.Counts[storage.StateError] != 2 || handled.total != 18 {
			t.Errorf("the status is %v, %v, after %d handled messages; want 18 done and 2 parked", status.Counts, err, handled.total)
		}
		if n := log.count("unavailable"); n > 0 {
			t.Errorf("the log reports the sink as unavailable: %s", log.text.String())
		}
	})
}

// refusals returns statements after which the database refuses every settlement.
func refusals(kind string, claim storage.Claim) map[string]string {
	all := map[string]string{"a column is missing": "ALTER TABLE outbox_done RENAME COLUMN receipt TO receipts"}
	if kind == testdb.Postgres && claim == storage.ByLanes { // when claiming by rows, the database would refuse claims, too
		all["no replica identity"] = "CREATE PUBLICATION all_outbox FOR TABLE outbox; ALTER TABLE outbox REPLICA IDENTITY NOTHING"
	}
	return all
}

// If the database refuses every settlement for a lasting reason, the relay reports this and stops sending; only messages that were
// already in flight are delivered. A stop doesn't wait for outcomes that can't be written, and a drain fails.
func TestLastingRefusalEndsSendingAndDelaysNoStop(t *testing.T) {
	t.Parallel()
	for _, target := range allTargets() {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			for what := range refusals(target.Kind, claim) {
				t.Run(target.Name+"/"+string(claim)+"/"+what, func(t *testing.T) {
					t.Parallel()
					table := open(t, target)
					exec(t, table.DB, refusals(target.Kind, claim)[what])
					for range 30 {
						exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('a'), ('a'), ('a'), ('a'), ('a'), ('a'), ('a'), ('a'), ('a'), ('a')")
					}
					store, handled := table.open(t), &deliveries{times: map[string]int{}}
					for _, drain := range []bool{false, true} {
						log := &logged{words: "refuses every outcome", found: make(chan struct{})}
						r, err := relay.New(store, relay.Options{
							Claim: claim, Drain: drain, DrainTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil)),
							Sinks: map[string]relay.SinkOptions{"main": {Sink: inproc.Func(handled.handle), Batch: 10}},
						})
						if err != nil {
							t.Fatal(err)
						}
						ctx, stop := context.WithCancel(t.Context())
						ended := make(chan error, 1)
						go func() { ended <- r.Run(ctx) }()
						<-log.found
						if healthy := r.Healthy(); !drain && (healthy == nil || !strings.Contains(healthy.Error(), "refuses every outcome")) {
							t.Errorf("Healthy: %v, want the refusal", healthy)
						}
						if !drain {
							stop()
						}
						if err := <-ended; err == nil || !strings.Contains(err.Error(), "were not written") {
							t.Errorf("Run: %v, want an error about outcomes that were not written", err)
						}
						stop()
						if strings.Contains(what, "identity") && log.count("ALTER TABLE") == 0 {
							t.Errorf("no log line has the server's hint: %s", log.text.String())
						}
					}
					if handled.total > 60 {
						t.Errorf("%d deliveries of 300 messages in two runs, none of which was marked", handled.total)
					}
				})
			}
		}
	}
}

// A relay without the right to write delivered messages reports the server's error.
func TestMissingPermissionIsReportedAndEndsSending(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		rights := grants(t, postgresPage, "shop_relay")
		name, pool := newUser(t, table, "shop_relay", rights)
		exec(t, table.DB, "REVOKE INSERT ON outbox_done FROM "+name)
		wantToldAndEnded(t, table, pool, "permission denied for table outbox_done")
	})
}

func TestMissingPermissionIsReportedAndEndsSendingOnMySQL(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		user, pool := m.poorUser(t)
		m.grantAllBut(t, user, "outbox_done", "SELECT, UPDATE, DELETE")
		wantToldAndEnded(t, m.table, pool, "INSERT command denied")
	})
}

// wantToldAndEnded drains 300 messages through a pool whose user lacks a right. It requires that the error contains words, and that
// the relay stopped after a few deliveries.
func wantToldAndEnded(t *testing.T, table table, pool *sql.DB, words string) {
	t.Helper()
	for range 30 {
		exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('a'), ('a'), ('a'), ('a'), ('a'), ('a'), ('a'), ('a'), ('a'), ('a')")
	}
	store, err := sqlstore.Open(t.Context(), pool, table.dialect, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	handled := &deliveries{times: map[string]int{}}
	r, err := relay.New(store, relay.Options{
		Drain: true, Logger: slog.New(slog.DiscardHandler), Sinks: map[string]relay.SinkOptions{"main": {Sink: inproc.Func(handled.handle), Batch: 10}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("drain: %v", err)
	}
	if handled.total > 30 {
		t.Errorf("%d deliveries, none of which was marked", handled.total)
	}
}
