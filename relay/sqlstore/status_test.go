package sqlstore_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Above its limit Status estimates the number of pending rows, and reports that the number is estimated. It
// counts all claimed rows, even those beyond the limit, because a drain waits for them.
func TestStatusEstimatesAboveItsLimit(t *testing.T) {
	runOn(t, onSQLite(), func(t *testing.T, table table) {
		migrate(t, table.DB, table.dialect, migrations.Options{Claim: "rows"})
		exec(t, table.DB, "INSERT INTO outbox_settings (name, value) VALUES ('claim', 'rows')")
		exec(t, table.DB, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100500)
			INSERT INTO outbox (topic, claimed_until) SELECT 't', CASE WHEN i > 100400 THEN '9999-01-01 00:00:00.000' END FROM n`)
		status, err := table.open(t).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if status.Counts[storage.StatePending] != 100400 || status.Counts[storage.StateClaimed] != 100 {
			t.Errorf("the counts are %v, want 100,400 pending and 100 claimed", status.Counts)
		}
		if !slices.Equal(status.Estimated, []storage.State{storage.StatePending}) || !slices.Equal(status.AtLeast, []storage.State{storage.StateScheduled}) {
			t.Errorf("the estimated counts are %v, and the lower bounds are %v", status.Estimated, status.AtLeast)
		}
	})
}

func onSQLite() []testdb.Target {
	return slices.DeleteFunc(testdb.Targets(), func(target testdb.Target) bool { return target.Kind != testdb.SQLite })
}

// If the database doesn't answer one of the status queries in time, only this query's values are absent.
func TestStatusLeavesOutQueriesThatTakeTooLong(t *testing.T) {
	runOn(t, onSQLite(), func(t *testing.T, table table) {
		exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		capabilities := table.open(t).BackendOn(nil).Capabilities()
		ask := capabilities.Queries.Status
		for _, test := range []struct {
			query  backend.Query
			absent storage.Gauge
		}{
			{ask.Counts, storage.GaugeCounts}, {ask.Oldest, storage.GaugeOldestPending}, {ask.OldestRetry, storage.GaugeOldestRetry}, {ask.Held, storage.GaugeHeldKeys},
			{ask.Topics, storage.GaugeTopics}, {ask.Relays, storage.GaugeRelays}, {ask.Leased, storage.GaugeLanes},
		} {
			synctest.Test(t, func(t *testing.T) {
				status, err := backend.ReadStatus(t.Context(), stuck{table.DB, test.query.SQL}, capabilities)
				if err != nil || !slices.Equal(status.Absent, []storage.Gauge{test.absent}) {
					t.Fatalf("absent are %v, want only %s; %v", status.Absent, test.absent, err)
				}
				if counted := status.Has(storage.GaugeCounts); counted != (status.Counts[storage.StatePending] == 1) {
					t.Errorf("without %s the counts are %v", test.absent, status.Counts)
				}
			})
		}
	})
}

// stuck is a database that never answers one statement.
type stuck struct {
	*sql.DB
	statement string
}

func (s stuck) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if query == s.statement {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.DB.QueryContext(ctx, query, args...)
}

// No status query reads all rows of a large table.
func TestStatusPlansOnPostgreSQL(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		exec(t, table.DB, "ALTER TABLE outbox SET (autovacuum_enabled = off)")
		fill(t, table.DB, 200_000)
		exec(t, table.DB, "VACUUM ANALYZE outbox")
		ask := table.open(t).BackendOn(nil).Capabilities().Queries.Status
		for name, query := range map[string]backend.Query{"counts": ask.Counts, "oldest": ask.Oldest, "topics": ask.Topics} {
			plan, err := backend.Lines(t.Context(), table.DB, backend.Query{SQL: "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, SUMMARY OFF) " + query.SQL, Args: query.Args})
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(plan, "\n"); strings.Contains(text, "rows=200000") {
				t.Errorf("%s reads all rows:\n%s", name, text)
			}
		}
	})
}
