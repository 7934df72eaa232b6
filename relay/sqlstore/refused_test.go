package sqlstore_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// pretending is a dialect on a server that says to be another.
type pretending struct {
	dialect.Dialect
	dialect.Fitting
	version string
}

func (p pretending) Server(table dialect.Table) (facts dialect.Query, trial *dialect.Trial) {
	_, trial = p.Fitting.Server(table)
	return dialect.Query{SQL: "SELECT 'version', '" + p.version + "'"}, trial
}

// Servers that take the URLs of those that are supported, and aren't, are refused by
// whoever opens a table or makes it.
func TestOtherServersAreRefused(t *testing.T) {
	t.Parallel()
	for version, refused := range map[string]struct{ target, why string }{
		"CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu)": {"postgres15/pgx", "the server is CockroachDB, which isn't supported: PostgreSQL 13 or later is needed"},
		"PostgreSQL 15.12-YB-2025.1.1.2-b3 on x86_64":   {"postgres15/pgx", "the server is YugabyteDB, which isn't supported: PostgreSQL 13 or later is needed"},
		"5.7.44-log": {"mysql/gosql", "the server is MySQL 5.7.44-log: MySQL 8.0.13 or later is needed"},
	} {
		for _, target := range testdb.Targets() {
			if target.Name != refused.target {
				continue
			}
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				table := open(t, target)
				d := pretending{table.dialect, table.dialect.(dialect.Fitting), version}
				if _, err := sqlstore.Open(t.Context(), table.DB, d, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), refused.why) {
					t.Errorf("open: %v, want %q", err, refused.why)
				}
				m, err := migrations.New(table.DB, d, migrations.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), refused.why) {
					t.Errorf("migrate: %v, want %q", err, refused.why)
				}
			})
		}
	}
}

// byRowsOnly is a dialect whose tables can't be claimed by lanes.
type byRowsOnly struct{ dialect.Dialect }

func (byRowsOnly) NoLanes() string { return "its ids have no order" }

// Whoever asks for lanes, as is the default, is told at start, and by a check.
func TestLanesAreRefused(t *testing.T) {
	t.Parallel()
	table := open(t, testdb.Targets()[0])
	table.dialect = byRowsOnly{table.dialect}
	store := table.open(t)
	err := store.SetClaimMode(t.Context(), storage.ByLanes)
	if err == nil || !strings.Contains(err.Error(), "its ids have no order") || !strings.Contains(err.Error(), "--claim rows") {
		t.Errorf("adopt lanes: %v, want why not, and what to do", err)
	}
	if err := store.SetClaimMode(t.Context(), storage.ByRows); err != nil {
		t.Errorf("adopt rows: %v", err)
	}
	for claim, wrong := range map[storage.Claim]string{storage.ByLanes: "claim", storage.ByRows: ""} {
		for _, finding := range sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, claim) {
			if finding.OK == (finding.Name == wrong) {
				t.Errorf("by %s: %+v", claim, finding)
			}
		}
	}
}
