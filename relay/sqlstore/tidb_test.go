package sqlstore_test

import (
	"context"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

// noLanes is a backend that has nothing for a relay by lanes: its methods panic.
type noLanes struct {
	backend.Members
	backend.Lanes
	backend.Pages
	backend.Settling
	backend.Rows
	backend.Operating
	whole backend.Backend
}

func (n noLanes) Traits() backend.Traits { return n.whole.Traits() }

func (n noLanes) Check(ctx context.Context, claim relay.Claim) []backend.Finding {
	return n.whole.Check(ctx, claim)
}

// byRowsTable is a table whose store meets such a backend.
type byRowsTable struct{ mysqlTable }

func (table byRowsTable) Store(t testing.TB) storetest.Store {
	store := table.open(t)
	store.Wrap(func(b backend.Backend) backend.Backend {
		return noLanes{Members: b, Settling: b, Rows: b, Operating: b, whole: b}
	})
	return store
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
					return byRowsTable{openTiDB(t, target)}
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
