package relaypgx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// written inserts messages whose columns have ordinary, extreme, empty
// and missing values.
const written = `INSERT INTO outbox (topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, created_at, expires_at, sinks) VALUES
	('orders', 'a', 'x', NULL, NULL, 0, 0, 0, NULL, '2026-01-02 03:04:05.678901+00', '2026-02-01 00:00:00.000001+02', ''),
	('orders', NULL, '', NULL, '{}', -32768, 2147483647, 1, NULL, '1999-12-31 23:59:59.999999+00', '9999-01-01 00:00:00+00', 'kafka'),
	('bestätigt ✓', 'ключ', '\x00ff', NULL, '{"name": "wert ✓", "empty": ""}', 32767, 1, 2147483647, '2099-01-01 00:00:00+02', '0001-01-01 00:00:00+00', NULL, 'web ✓,kafka'),
	('orders', '', NULL, 'text ✓', '{"name": 1}', 1, 0, 0, '2000-01-01 00:00:00+00', '294276-12-31 23:59:59+00', NULL, ''),
	('orders', repeat('k', 255), NULL, NULL, NULL, 0, 0, 0, NULL, '4713-01-01 00:00:00 BC', NULL, ''),
	('orders', 'a', convert_to(repeat('x', 100000), 'UTF8'), NULL, NULL, 0, 0, 0, NULL, now(), NULL, '')`

// onPostgres runs a check on each server, in a database that has the
// messages of [written].
func onPostgres(t *testing.T, driver string, check func(*testing.T, testdb.Database)) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Kind != testdb.Postgres || target.Driver != driver {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := target.OpenOutbox(t)
			for _, statement := range []string{"ALTER TABLE outbox DROP CONSTRAINT created_at_range", written} {
				if _, err := db.DB.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			check(t, db)
		})
	}
}

// open opens a pool with additional parameters in its URL.
func open(t *testing.T, db testdb.Database, parameters string) *sql.DB {
	db.DSN += parameters
	return db.OpenAnother(t)
}

// counting counts the reads that the Reader supports, and the reads that it
// doesn't support.
type counting struct {
	backend.Reader
	known, foreign int
}

func (c *counting) Read(ctx context.Context, db *sql.DB, query string, args []any, take backend.TakeLine) (bool, error) {
	known, err := c.Reader.Read(ctx, db, query, args, take)
	if known {
		c.known++
	} else if err == nil {
		c.foreign++
	}
	return known, err
}

func page(t *testing.T, db *sql.DB, reader backend.Reader, limit, maxBytes int) storage.Page {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), db, dialect.Postgres(), sqlstore.Options{Reader: reader})
	if err != nil {
		t.Fatal(err)
	}
	var positions []storage.Position
	for lane := range storage.Lanes {
		positions = append(positions, storage.Position{Lane: lane})
	}
	page, err := store.Read(t.Context(), storage.ReadRequest{Positions: positions, Limit: limit, MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// The Reader reads the same values as database/sql in each mode of pgx. In modes
// in which the server sends values as text, the Reader isn't used.
func TestReadsWhatDatabaseSQLReads(t *testing.T) {
	modes := []struct {
		parameters string
		known      int
	}{
		{"", 1},
		{"&default_query_exec_mode=cache_describe", 1},
		{"&default_query_exec_mode=describe_exec", 1},
		{"&default_query_exec_mode=exec", 0},
		{"&default_query_exec_mode=simple_protocol", 0},
		{"&timezone=Asia/Kathmandu", 1},
	}
	onPostgres(t, "pgx", func(t *testing.T, db testdb.Database) {
		for _, mode := range modes {
			pool := open(t, db, mode.parameters)
			for _, bounds := range []struct{ limit, bytes int }{{100, 1 << 20}, {2, 1 << 20}, {100, 1}} {
				reader := &counting{Reader: relaypgx.Reader{}}
				want, got := page(t, pool, nil, bounds.limit, bounds.bytes), page(t, pool, reader, bounds.limit, bounds.bytes)
				if len(want.Rows) == 0 || len(got.Rows) != len(want.Rows) || got.More != want.More {
					t.Fatalf("%q, %v: %d rows, more: %v; want %d, %v", mode.parameters, bounds, len(got.Rows), got.More, len(want.Rows), want.More)
				}
				for i := range want.Rows {
					if !reflect.DeepEqual(got.Rows[i], want.Rows[i]) {
						t.Errorf("%q, %v: %.500s\nwant %.500s", mode.parameters, bounds, fmt.Sprintf("%#v", got.Rows[i]), fmt.Sprintf("%#v", want.Rows[i]))
					}
				}
				if reader.known != mode.known || reader.foreign != 1-mode.known {
					t.Errorf("%q: the Reader supported %d reads and didn't support %d", mode.parameters, reader.known, reader.foreign)
				}
			}
		}
	})
}

// With another driver, the store reads with database/sql, and calls the
// Reader only once.
func TestLeavesOtherDriversAlone(t *testing.T) {
	onPostgres(t, "postgres", func(t *testing.T, db testdb.Database) {
		reader := &counting{Reader: relaypgx.Reader{}}
		if got := page(t, db.DB, reader, 100, 1<<20); len(got.Rows) != 6 || reader.foreign != 1 || reader.known != 0 {
			t.Errorf("%d rows; the Reader supported %d reads and didn't support %d", len(got.Rows), reader.known, reader.foreign)
		}
	})
}

// If a connection was closed while it was idle in the pool, a read fails at most
// once, and the next read succeeds.
func TestGoesOnAfterLostConnections(t *testing.T) {
	onPostgres(t, "pgx", func(t *testing.T, db testdb.Database) {
		pool := open(t, db, "&application_name=lost")
		pool.SetMaxOpenConns(1)
		store, err := sqlstore.Open(t.Context(), pool, dialect.Postgres(), sqlstore.Options{Reader: relaypgx.Reader{}})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			terminate(t, db, "lost")
			_, first := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 0}}, Limit: 10, MaxBytes: 1 << 20})
			_, second := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 0}}, Limit: 10, MaxBytes: 1 << 20})
			if second != nil {
				t.Fatalf("after a lost connection: %v, and then %v", first, second)
			}
		}
	})
}

func terminate(t *testing.T, db testdb.Database, name string) {
	t.Helper()
	_, err := db.DB.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid, 300000) FROM pg_stat_activity WHERE application_name = $1", name)
	if err != nil {
		t.Fatal(err)
	}
}

// A read ends when the callback returns false or an error, or when the server
// reports an error. The connection can be used again afterwards.
func TestReadEnds(t *testing.T) {
	const query = "SELECT NULL::text, n, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, NULL::smallint, 0, 0, %, 0 FROM generate_series(1::bigint, 100000) AS n"
	wanted := errors.New("enough")
	cases := []struct {
		name, created string
		take          func(*backend.Columns) (bool, error)
		err           string
	}{
		{"no more", "now()", func(c *backend.Columns) (bool, error) { return c.ID < 3, nil }, ""},
		{"an error", "now()", func(c *backend.Columns) (bool, error) { return true, wanted }, "enough"},
		{"an infinite time", "'infinity'::timestamptz", func(c *backend.Columns) (bool, error) { return true, errors.New(c.Malformed) }, "created_at can't be read: it is infinite"},
		{"the server's error", "now() + make_interval(secs => 1 / (5 - n))", func(*backend.Columns) (bool, error) { return true, nil }, "division by zero"},
	}
	onPostgres(t, "pgx", func(t *testing.T, db testdb.Database) {
		db.DB.SetMaxOpenConns(1)
		for _, c := range cases {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			known, err := relaypgx.Reader{}.Read(ctx, db.DB, strings.Replace(query, "%", c.created, 1), nil,
				func(_ []byte, row *backend.Columns) (bool, error) { return c.take(row) })
			if err == nil && c.err != "" || err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s: %v, %v", c.name, known, err)
			}
			if err := db.DB.PingContext(ctx); err != nil {
				t.Errorf("after %s: %v", c.name, err)
			}
			cancel()
		}
	})
}
