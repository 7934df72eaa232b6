package sqlstore_test

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

// openTiDB takes the server for a MySQL, as its URL does.
func openTiDB(t testing.TB, target testdb.Target) mysqlTable {
	t.Helper()
	db := target.Open(t)
	migrate(t, db.DB, dialect.MySQL(), migrations.Options{Claim: "rows"})
	return mysqlTable{table{db, dialect.MySQL()}}
}

// The statements by lanes, which the suite doesn't use here, fail.
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
					m.dialect = elsewhere{dialect.TiDB()}
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
