package sqlstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

// elsewhere is a dialect of rows only on a server that isn't its own, which it
// would refuse. The statements by lanes fail, as they would on its own.
type elsewhere struct{ dialect.Dialect }

var noLanes = dialect.Query{SQL: "SELECT not_by_lanes"}

func (elsewhere) Acquire(dialect.Table, string, int, time.Duration) dialect.Steps {
	return dialect.Steps{Ask: noLanes}
}
func (elsewhere) Renew(dialect.Table, string, string, []dialect.Lease, time.Duration) dialect.Steps {
	return dialect.Steps{Ask: noLanes}
}
func (elsewhere) Release(dialect.Table, string, string, []dialect.Lease) dialect.Steps {
	return dialect.Steps{Ask: noLanes}
}
func (elsewhere) Journal(dialect.Table, string, []dialect.Lease) dialect.Steps {
	return dialect.Steps{Ask: noLanes}
}
func (elsewhere) Read(_ dialect.Table, read dialect.Read) dialect.Query {
	if len(read.Positions) > 0 {
		return noLanes
	}
	return dialect.Query{SQL: "SELECT '0 0', 0::bigint, 0::smallint, '', '', '', NULL::bytea, '', NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0"}
}
func (elsewhere) Candidates(dialect.Table, []dialect.Position, []string, int) dialect.Query {
	return noLanes
}
func (elsewhere) Pick(dialect.Table, []int, []int64) dialect.Query                { return noLanes }
func (elsewhere) Due(dialect.Table, []int, dialect.After, int, int) dialect.Query { return noLanes }
func (elsewhere) HeldKeys(dialect.Table, []int, int) dialect.Query                { return noLanes }
func (elsewhere) HeldAmong(dialect.Table, []int, []string) dialect.Query          { return noLanes }
func (elsewhere) SettleLanes(dialect.Table, string, bool, []dialect.Settlement) dialect.Settle {
	return dialect.Settle{Facts: noLanes}
}

// The SQL for servers that can't be had here is tried on PostgreSQL, which takes
// it: that it means what it is to mean. What those servers make of it isn't seen
// here.
func TestKinOnPostgres(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Name != "postgres15/pgx" && target.Name != "postgres18/pq" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Harness{
				ByRows: true,
				Open:   func(t testing.TB) storetest.Table { return lockable{openKin(t, target, dialect.YugabyteDB())} },
			})
		})
	}
}

// pretending is PostgreSQL's dialect on a server that says to be another.
type pretending struct {
	dialect.Dialect
	dialect.Fitting
	version string
}

func (p pretending) Server() dialect.Query {
	return dialect.Query{SQL: "SELECT 'version', $1::text", Args: []any{p.version}}
}

// Whoever asks for lanes, as is the default, is told at start, and by a check.
func TestLanesAreRefused(t *testing.T) {
	t.Parallel()
	versions := map[string]string{
		"CockroachDB 25.2":      "CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu)",
		"YugabyteDB 2025.1.1.2": "PostgreSQL 15.12-YB-2025.1.1.2-b3 on x86_64",
	}
	for name, version := range versions {
		table := openKin(t, testdb.Targets()[0], dialect.YugabyteDB())
		postgres := dialect.Postgres()
		table.dialect = pretending{postgres, postgres.(dialect.Fitting), version}
		store := table.open(t)
		err := store.Adopt(t.Context(), relay.ByLanes)
		if err == nil || !strings.Contains(err.Error(), "doesn't tell which transactions are open") || !strings.Contains(err.Error(), "--claim rows") {
			t.Errorf("%s: adopt lanes: %v, want why not, and what to do", name, err)
		}
		if err := store.Adopt(t.Context(), relay.ByRows); err != nil {
			t.Errorf("%s: adopt rows: %v", name, err)
		}
		for claim, wrong := range map[relay.Claim]string{relay.ByLanes: "claim", relay.ByRows: ""} {
			for _, finding := range sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, claim) {
				if finding.OK == (finding.Name == wrong) {
					t.Errorf("%s by %s: %+v", name, claim, finding)
				}
				if finding.Name == "server" && !strings.HasPrefix(finding.Detail, name+", by rows only") {
					t.Errorf("%s: the check says %q", name, finding.Detail)
				}
			}
		}
	}
}

// A server that passes over nothing, or takes the limit before it does, is
// refused by a trial at start, whatever its version.
func TestKinIsTried(t *testing.T) {
	t.Parallel()
	table := openKin(t, testdb.Targets()[0], dialect.CockroachDB())
	cockroach := dialect.CockroachDB().(dialect.Fitting)
	version := "CockroachDB CCL v25.2.1 (x86_64)"
	wrong := map[string]string{
		"nothing is skipped": "SELECT lane FROM outbox_lanes WHERE lane IN (0, 1) ORDER BY lane LIMIT 1",
		"the limit is first": "SELECT lane FROM outbox_lanes WHERE lane = (SELECT min(lane) FROM outbox_lanes) FOR UPDATE SKIP LOCKED",
	}
	for name, pass := range wrong {
		trial := *cockroach.Skipping(dialect.Table{})
		trial.Pass.SQL = pass
		table.dialect = tried{pretending{dialect.CockroachDB(), cockroach, version}, &trial}
		if _, err := sqlstore.Open(t.Context(), table.DB, table.dialect, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), "doesn't pass over locked rows") {
			t.Errorf("%s: %v, want that it is refused", name, err)
		}
	}
	table.dialect = pretending{dialect.CockroachDB(), cockroach, version}
	table.open(t)
}

type tried struct {
	pretending
	trial *dialect.Trial
}

func (t tried) Skipping(dialect.Table) *dialect.Trial { return t.trial }

func openKin(t testing.TB, target testdb.Target, d dialect.Dialect) table {
	t.Helper()
	db := target.Open(t)
	// CockroachDB has this function, and with it another lane for a key.
	exec(t, db.DB, "CREATE FUNCTION crc32ieee(text) RETURNS bigint LANGUAGE SQL IMMUTABLE AS 'SELECT hashtext($1)::bigint'")
	m, err := migrations.New(db.DB, elsewhere{d}, migrations.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return table{db, elsewhere{d}}
}
