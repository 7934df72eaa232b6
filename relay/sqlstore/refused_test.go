package sqlstore_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

// pretending is a dialect whose server reports another version.
type pretending struct {
	dialect.Dialect
	dialect.Fitting
	version string
}

func (p pretending) Server(table dialect.Table) (facts dialect.Query, trial *dialect.Trial) {
	_, trial = p.Fitting.Server(table)
	return dialect.Query{SQL: "SELECT 'version', '" + p.version + "'"}, trial
}

// Unsupported servers that accept the URLs of supported ones are refused by Open and by the migration.
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
