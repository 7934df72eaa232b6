package outboxdb_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// limited opens a pool whose sessions have a setting.
func (db database) limited(t *testing.T, setting, value string) *sql.DB {
	t.Helper()
	dsn := db.DSN
	if isMySQL(db.Kind) {
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal("the test server's DSN is malformed; it is not shown because it has a password")
		}
		config.Params[setting] = value
		dsn = config.FormatDSN()
	} else {
		dsn += "&" + url.Values{setting: {value}}.Encode()
	}
	pool, err := sql.Open(db.Driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// has reports whether the server knows a setting.
func (db database) has(t *testing.T, setting string) bool {
	t.Helper()
	query := "SELECT count(*) FROM pg_settings WHERE name = '" + setting + "'"
	if isMySQL(db.Kind) {
		query = "SELECT count(*) FROM (SELECT 1 FROM performance_schema.session_variables WHERE variable_name = '" + setting + "') AS v"
		if db.Kind == testdb.MariaDB {
			query = strings.Replace(query, "performance_schema", "information_schema", 1)
		}
	}
	var count int
	if err := db.DB.QueryRowContext(t.Context(), query).Scan(&count); err != nil {
		t.Fatal(err)
	}
	return count == 1
}

// lock locks the rows or a table, so that relays can't settle the messages in the table until
// release is called.
func (db database) lock(t *testing.T, rows bool) (release func()) {
	t.Helper()
	lock := "LOCK TABLE outbox_done IN EXCLUSIVE MODE"
	switch {
	case isMySQL(db.Kind) && !rows:
		lock = "LOCK TABLES outbox_done READ"
	case rows:
		lock = "SELECT id FROM outbox FOR UPDATE"
	}
	conn, err := db.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	run := func(statement string) {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	run("BEGIN")
	run(lock)
	return func() {
		run("COMMIT")
		if isMySQL(db.Kind) {
			run("UNLOCK TABLES")
		}
	}
}

// failing is an Observer that reports each failure of a relay.
type failing struct {
	relay.NoObserver
	failed chan failure
}

type failure struct {
	stage string
	err   error
}

func (f failing) Failed(stage string, err error) { f.failed <- failure{stage, err} }

// Another session has a lock, so a time limit of the server cancels each settlement. The relay
// reports the reason, sets no outcome aside, and writes all outcomes when the lock is gone.
func TestTimeLimitsOfTheServerCostNoMessage(t *testing.T) {
	type limit struct {
		setting, value, says string
		rows                 bool // settlements wait for locked rows, not for a locked table
		failures             int  // the number of failures that the test waits for
	}
	const many = 12 // a relay sets an outcome aside after fewer refusals
	limits := map[string][]limit{
		testdb.Postgres: {{"statement_timeout", "1000", "statement timeout", true, many}, {"lock_timeout", "1000", "lock timeout", true, 2}, {"transaction_timeout", "1000", "transaction timeout", false, many}},
		testdb.MariaDB:  {{"max_statement_time", "1", "max_statement_time exceeded", true, many}, {"lock_wait_timeout", "1", "Lock wait timeout", false, 2}, {"innodb_lock_wait_timeout", "1", "Lock wait timeout", true, 2}},
		testdb.MySQL:    {{"lock_wait_timeout", "1", "Lock wait timeout", false, 2}, {"innodb_lock_wait_timeout", "1", "Lock wait timeout", true, 2}},
	}
	on := func(t *testing.T, db database) {
		for _, limit := range limits[db.Kind] {
			if !db.has(t, limit.setting) {
				continue
			}
			if limit.setting == "transaction_timeout" && db.Driver == "postgres" { // lib/pq hides why a server ends a connection
				limit.says, limit.failures = "bad connection", 2
			}
			t.Run(limit.setting, func(t *testing.T) { // sequential, because all limits use one table
				var store *sqlstore.Store
				for pool, err := db.limited(t, limit.setting, limit.value), error(nil); store == nil; { // on a slow server, Open itself may exceed the limit
					if store, err = sqlstore.Open(t.Context(), pool, db.dialect, sqlstore.Options{}); err != nil && !strings.Contains(err.Error(), limit.says) {
						t.Fatal(err)
					}
				}
				var messages []outbox.Message
				for i := range 3 {
					messages = append(messages, outbox.Message{ID: outbox.NewID(), Topic: "t", Key: fmt.Sprint(i)})
				}
				if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), outbox.WithoutTransaction(db.DB), messages...); err != nil {
					t.Fatal(err)
				}
				release := db.lock(t, limit.rows)
				observer := failing{failed: make(chan failure, 1000)}
				engine, err := relay.New(store, relay.Options{
					Retention: time.Hour, Observer: observer, Poll: 50 * time.Millisecond,
					Sinks: map[string]relay.SinkOptions{"sink": {Sink: inproc.Func(func(context.Context, sinks.Message) error { return nil })}},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- engine.Run(ctx) }()
				for settles := 0; settles < limit.failures; {
					select {
					case f := <-observer.failed:
						if f.stage == "settle" && strings.Contains(f.err.Error(), limit.says) {
							settles++
						}
						if f.stage == "settle_refused" {
							t.Fatalf("an outcome was set aside after %d settlements: %v", settles, f.err)
						}
					case err := <-ended:
						t.Fatalf("the relay ended: %v", err)
					}
				}
				release()
				for done := 0; done < len(messages); time.Sleep(10 * time.Millisecond) {
					select {
					case err := <-ended:
						t.Fatalf("the relay ended, and %d of %d messages are done: %v", done, len(messages), err)
					default:
					}
					infos, err := store.List(t.Context(), storage.Filter{State: storage.StateDone, Limit: 1000})
					if err != nil && !strings.Contains(err.Error(), limit.says) {
						t.Fatal(err)
					}
					done = len(infos)
				}
				cancel()
				if err := <-ended; err != nil && !strings.Contains(err.Error(), limit.says) {
					t.Error(err)
				}
				db.exec(t, "DELETE FROM outbox_done")
			})
		}
	}
	t.Parallel()
	for _, target := range testdb.Targets() {
		if limits[target.Kind] == nil || isMySQL(target.Kind) && target.Driver != "mysql" { // go-mysql-org's driver sets no variables
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			on(t, migrated(t, target, "outbox"))
		})
	}
}

// The server ends idle connections. The next call uses a new connection and doesn't fail. With
// lib/pq one call may fail first, because that driver doesn't check a connection before it uses it.
// If the connection was reset, the call returns that error.
func TestCallsAfterTheServerEndedIdleConnections(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		setting, value := "wait_timeout", "1"
		switch {
		case target.Kind == testdb.Postgres:
			setting, value = "idle_session_timeout", "1000" // pgx checks a connection that was idle for more than a second
		case target.Driver != "mysql":
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t, target, "outbox")
			if !db.has(t, setting) {
				t.Skip("this version has no " + setting)
			}
			pool := db.limited(t, setting, value)
			// unhurried repeats a failed call if the call took so long that the server may have
			// ended its connection meanwhile. With lib/pq it repeats any failed call.
			unhurried := func(call func() error) (err error) {
				for soon := time.Now().Add(5 * time.Minute); time.Now().Before(soon); {
					began := time.Now()
					if err = call(); err == nil || time.Since(began) < time.Second && target.Driver != "postgres" {
						return err
					}
				}
				return err
			}
			var store *sqlstore.Store
			if err := unhurried(func() (err error) {
				store, err = sqlstore.Open(t.Context(), pool, db.dialect, sqlstore.Options{})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			connected := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
			if isMySQL(db.Kind) {
				connected = "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
			}
			observer, err := db.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = observer.Close() }()
			writer := newWriter(t, db.dialect, outbox.Options{})
			for name, call := range map[string]func() error{
				"write": func() error {
					return writer.Write(t.Context(), outbox.WithoutTransaction(pool), outbox.Message{Topic: "t", Key: "k"})
				},
				"heartbeat": func() error {
					_, err := store.Heartbeat(t.Context(), storage.Identity{Name: "r", Claim: storage.ByLanes}, time.Minute)
					return err
				},
				"read": func() error {
					_, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 1}}, Limit: 10, MaxBytes: 1000})
					return err
				},
				"purge":  func() error { _, err := store.Purge(t.Context(), 0, 10); return err },
				"status": func() error { _, err := store.Status(t.Context()); return err },
			} {
				for left := -1; left != 0; time.Sleep(10 * time.Millisecond) {
					err := observer.QueryRowContext(t.Context(), connected).Scan(&left)
					if err != nil && !strings.Contains(err.Error(), "3854") { // MySQL: a session is executing a statement with an emoji
						t.Fatal(err)
					}
				}
				if pool.Stats().OpenConnections == 0 {
					t.Errorf("%s: the pool itself has closed its connections, so the call tests nothing", name)
				}
				if err := unhurried(call); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}
