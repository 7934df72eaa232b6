package sqlstore_test

import (
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

// rowsOnly is a dialect whose statements by lanes fail.
type rowsOnly struct {
	dialect.Dialect
	dialect.Relaying
}

var noLanes = dialect.Query{SQL: "SELECT not_by_lanes"}

func (rowsOnly) Acquire(dialect.Table, string, int, time.Duration) dialect.Steps {
	return dialect.Steps{Ask: noLanes}
}
func (rowsOnly) Renew(dialect.Table, string, string, []dialect.Lease, time.Duration) dialect.Steps {
	return dialect.Steps{Ask: noLanes}
}
func (rowsOnly) Release(dialect.Table, string, string, []dialect.Lease) dialect.Steps {
	return dialect.Steps{Ask: noLanes}
}
func (rowsOnly) Journal(dialect.Table, string, []dialect.Lease) dialect.Steps {
	return dialect.Steps{Ask: noLanes}
}
func (rowsOnly) Read(dialect.Table, dialect.Read) dialect.Query { return noLanes }
func (rowsOnly) Candidates(dialect.Table, []dialect.Position, []string, int) dialect.Query {
	return noLanes
}
func (rowsOnly) Pick(dialect.Table, []int, []int64) dialect.Query                { return noLanes }
func (rowsOnly) Due(dialect.Table, []int, dialect.After, int, int) dialect.Query { return noLanes }
func (rowsOnly) HeldKeys(dialect.Table, []int, int) dialect.Query                { return noLanes }
func (rowsOnly) HeldAmong(dialect.Table, []int, []string) dialect.Query          { return noLanes }
func (rowsOnly) SettleLanes(dialect.Table, string, bool, []dialect.Settlement) dialect.Settle {
	return dialect.Settle{Facts: noLanes}
}

// openTiDB takes the server for a MySQL, as its URL does.
func openTiDB(t testing.TB, target testdb.Target) mysqlTable {
	t.Helper()
	db := target.Open(t)
	migrate(t, db.DB, dialect.MySQL(), migrations.Options{Claim: "rows"})
	return mysqlTable{table{db, dialect.MySQL()}}
}

func TestStoreByRowsOnly(t *testing.T) {
	t.Parallel()
	suite := newSuite(t)
	for _, target := range testdb.RowsOnly() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, suite.on(t, target, storetest.Harness{
				ByRows: true, Waits: true,
				Open: func(t testing.TB) storetest.Table {
					m := openTiDB(t, target)
					m.dialect = rowsOnly{dialect.TiDB(), dialect.TiDB().(dialect.Relaying)}
					return m
				},
			}))
		})
	}
}

// What TiDB is, and that it can't be claimed by lanes, is told at start and by a
// check.
func TestTiDBIsTold(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.RowsOnly() {
		m := openTiDB(t, target)
		if err := m.open(t).Adopt(t.Context(), relay.ByLanes); err == nil {
			t.Error("it adopts lanes")
		}
		for claim, wrong := range map[relay.Claim]string{relay.ByLanes: "claim", relay.ByRows: ""} {
			for _, finding := range sqlstore.Check(t.Context(), m.DB, m.dialect, sqlstore.Options{}, claim) {
				t.Logf("%s: %+v", claim, finding)
				if finding.OK == (finding.Name == wrong) {
					t.Errorf("by %s: %+v", claim, finding)
				}
			}
		}
	}
}
