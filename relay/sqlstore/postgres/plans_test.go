package postgres_test

import (
	"database/sql/driver"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/postgres"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// The server may keep the plan of a page's query, except for a minute after a page that took long, because
// the kept plan may be a bad one.
func TestPlanIsKeptWhileReadsAreQuick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var takes time.Duration
		recorder := &backendtest.Recorder{Answer: func(string) [][]driver.Value { time.Sleep(takes); return nil }}
		db := recorder.DB()
		defer db.Close()
		b := postgres.New(db, dialect.Postgres(), backendtest.Table(t, "outbox"), nil)
		read := func() string {
			_, _ = b.Read(t.Context(), backend.Read{Positions: []storage.Position{{Lane: 1, Until: 100}}, Limit: 5}, nil)
			queries := recorder.Taken()
			return queries[len(queries)-1].SQL
		}
		want := func(kept bool, when string) {
			t.Helper()
			if strings.Contains(read(), "generate_series") == kept {
				t.Errorf("%s: the plan of a page may be kept: %t", when, !kept)
			}
		}
		want(true, "before any slow page")
		takes = 99 * time.Millisecond
		read()
		want(true, "after a quick page")
		takes = 101 * time.Millisecond
		read()
		takes = 0
		want(false, "after a slow page")
		time.Sleep(59 * time.Second)
		want(false, "just before the minute ends")
		time.Sleep(time.Second)
		want(true, "a minute later")
	})
}

// A check of plans sees the statements that a method runs for the rows that Sample returns.
func TestSampleLetsAcquireLease(t *testing.T) {
	t.Parallel()
	recorder := &backendtest.Recorder{}
	db := recorder.DB()
	defer db.Close()
	b := postgres.New(db, dialect.Postgres(), backendtest.Table(t, "outbox"), nil)
	recorder.Answer = b.Sample
	_, _, _ = b.Acquire(t.Context(), "r", 64, time.Second, 1)
	queries := recorder.Taken()
	if last := queries[len(queries)-1].SQL; !strings.HasPrefix(last, "UPDATE outbox_lanes") {
		t.Errorf("the last of %d statements is %s", len(queries), last)
	}
}
