package sqlstore_test

import (
	"database/sql"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func eachTable(t *testing.T, check func(*testing.T, table)) {
	t.Helper()
	t.Parallel()
	for _, target := range allTargets() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			check(t, open(t, target))
		})
	}
}

// allTargets returns the targets except Oracle and SQL Server, with only one driver for MySQL and MariaDB.
func allTargets() []testdb.Target {
	return slices.DeleteFunc(testdb.Each(), func(target testdb.Target) bool {
		return isMySQL(target.Kind) && !strings.HasSuffix(target.Name, "/gosql") || target.Kind == testdb.SQLServer || target.Kind == testdb.Oracle
	})
}

func isMySQL(kind string) bool { return kind == testdb.MySQL || kind == testdb.MariaDB }

func TestCheckFindsNoProblem(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			migrate(t, table.DB, table.dialect, migrations.Options{Claim: string(claim)})
			for _, finding := range sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, claim) {
				if !finding.OK && finding.Name != "transactions" && finding.Name != "transaction list" { // other tests on the same server can cause these two
					t.Errorf("the check for claiming by %s reports %+v", claim, finding)
				}
			}
		}
	})
}

func TestCheckReportsWrongSchemaIndexesAndClaim(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		wrong := func(claim storage.Claim, options sqlstore.Options, name string) {
			t.Helper()
			for _, finding := range sqlstore.Check(t.Context(), table.DB, table.dialect, options, claim) {
				if finding.Name == name && !finding.OK && finding.Detail != "" && finding.Hint != "" {
					return
				}
			}
			t.Errorf("no finding about the %s has a problem with a detail and a hint", name)
		}
		wrong(storage.ByLanes, sqlstore.Options{Table: "nowhere"}, "schema")
		wrong(storage.ByRows, sqlstore.Options{}, "indexes")
		if err := table.open(t).SetClaimMode(t.Context(), storage.ByLanes); err != nil {
			t.Fatal(err)
		}
		wrong(storage.ByRows, sqlstore.Options{}, "claim")
		exec(t, table.DB, "UPDATE outbox_settings SET value = '99' WHERE name LIKE 'schema%'")
		wrong(storage.ByLanes, sqlstore.Options{}, "schema")
	})
}

func exec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatalf("%.100s: %v", statement, err)
	}
}

// The check names all rights that a user without rights lacks. With exactly these rights the user can
// run a relay.
func TestRightsNamedByCheckSuffice(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		if table.Kind != testdb.Postgres {
			return // SQLite has no users
		}
		poor := asPoorUser(t, table)
		findings := sqlstore.Check(t.Context(), poor, table.dialect, sqlstore.Options{}, storage.ByLanes)
		missing := ""
		for _, finding := range findings {
			if finding.Name == "rights" {
				missing = finding.Detail
			}
		}
		_, list, _ := strings.Cut(missing, "lacks: ")
		if strings.Count(list, ",") < 10 {
			t.Fatalf("a user without any right: %+v", findings)
		}
		for grant := range strings.SplitSeq(list, ", ") {
			exec(t, table.DB, "GRANT "+grant+" TO "+poorName(table))
		}
		useEverything(t, table, poor)
	})
}

func poorName(table table) string {
	address, _ := url.Parse(table.DSN)
	return "poor_" + strings.TrimPrefix(address.Path, "/rowrelay_test_")
}

func asPoorUser(t *testing.T, table table) *sql.DB {
	t.Helper()
	name := poorName(table)
	exec(t, table.DB, "CREATE ROLE "+name+" LOGIN PASSWORD 'poor'")
	exec(t, table.DB, "GRANT SELECT ON outbox_settings, outbox_lanes TO "+name)
	t.Cleanup(func() {
		exec(t, table.DB, "DROP OWNED BY "+name)
		exec(t, table.DB, "DROP ROLE "+name)
	})
	address, err := url.Parse(table.DSN)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(name, "poor")
	pool, err := sql.Open(table.Driver, address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// useEverything calls all store methods that an operator and a relay that claims by lanes call.
func useEverything(t *testing.T, table table, pool *sql.DB) {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), pool, table.dialect, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, table.DB, "INSERT INTO outbox (topic, message_key) VALUES ('a', 'k'), ('b', 'k')")
	self := storage.Identity{Name: "poor", Claim: storage.ByLanes}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must("set the claim mode", store.SetClaimMode(t.Context(), storage.ByLanes))
	_, err = store.Heartbeat(t.Context(), self, 1e9)
	must("heartbeat", err)
	grants, err := store.Acquire(t.Context(), "poor", storage.Lanes, 1e9)
	must("acquire", err)
	var positions []storage.Position
	fences := map[int]int64{}
	for _, grant := range grants {
		positions = append(positions, storage.Position{Lane: grant.Lane})
		fences[grant.Lane] = grant.Fence
	}
	page, err := store.Read(t.Context(), storage.ReadRequest{Positions: positions, Limit: 10, MaxBytes: 1000})
	must("read", err)
	if len(page.Rows) != 2 {
		t.Fatalf("read %d rows, want 2", len(page.Rows))
	}
	var settlements []storage.Settlement
	for i, row := range page.Rows {
		settlements = append(settlements, storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: fences[row.Lane], State: []storage.State{storage.StateDone, storage.StateError}[i]})
	}
	settlements[1].DeadLetter = &storage.Copy{MessageID: outbox.NewID(), Topic: "dead", Headers: "{}"}
	_, err = store.Settle(t.Context(), "poor", true, settlements)
	must("settle", err)
	_, err = store.Requeue(t.Context(), storage.Filter{})
	must("requeue", err)
	_, err = store.Status(t.Context())
	must("status", err)
	_, err = store.Purge(t.Context(), 0, 10)
	must("purge", err)
	must("deregister", store.Deregister(t.Context(), "poor"))
	err = store.SetClaimMode(t.Context(), storage.ByRows)
	if want := table.dialect.MakeRowIndexes(backendtest.Table(t, "outbox"))[0].SQL; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("set the claim mode rows without the right to create indexes: %v, want the statements", err)
	}
}

// If the id sequence has a cache, descends or cycles, a session may write a low id after relays have read
// higher ones. A relay that claims by lanes can't notice this, so SetClaimMode refuses the mode.
func TestLanesRefuseSequencesThatBreakTheOrder(t *testing.T) {
	t.Parallel()
	for _, target := range allTargets() {
		if target.Kind != testdb.Postgres {
			continue
		}
		for _, setting := range []string{"CACHE 50", "INCREMENT BY -1", "CYCLE"} {
			t.Run(target.Name+" "+setting, func(t *testing.T) {
				t.Parallel()
				table := open(t, target)
				exec(t, table.DB, "ALTER SEQUENCE outbox_id_seq MINVALUE -1000 "+setting)
				store := table.open(t)
				if err := store.SetClaimMode(t.Context(), storage.ByLanes); err == nil || !strings.Contains(err.Error(), setting) {
					t.Errorf("by lanes with %s: %v, want an error that names the setting", setting, err)
				}
				if err := store.SetClaimMode(t.Context(), storage.ByRows); err != nil {
					t.Errorf("by rows with %s: %v", setting, err)
				}
				i := slices.IndexFunc(store.Check(t.Context(), storage.ByLanes), func(f sqlstore.Finding) bool {
					return f.Name == "ids" && !f.OK && strings.Contains(f.Detail, setting)
				})
				if i < 0 {
					t.Errorf("the check doesn't name %s", setting)
				}
			})
		}
	}
}

// The check reports marks that are above all assigned ids, or above pending messages.
func TestCheckReportsWrongMarks(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		store := table.open(t)
		if store.SetClaimMode(t.Context(), storage.ByLanes) != nil {
			return // this database supports only the claim by rows
		}
		detail := func() string {
			for _, finding := range store.Check(t.Context(), storage.ByLanes) {
				if finding.Name == "marks" {
					return finding.Detail
				}
			}
			return "no finding about the marks"
		}
		mark := func(main int64) {
			grants, err := store.Acquire(t.Context(), "r", storage.Lanes, time.Minute)
			if err != nil || len(grants) != storage.Lanes {
				t.Fatalf("acquired %d lanes, %v", len(grants), err)
			}
			var renewals []storage.Renewal
			for _, g := range grants {
				renewals = append(renewals, storage.Renewal{Lease: g.Lease, Marks: storage.Marks{Main: main}})
			}
			if err := store.Release(t.Context(), "r", renewals); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		}
		if found := detail(); found != "" {
			t.Errorf("no lane was leased yet, but the check reports %q", found)
		}
		mark(2)
		if found := detail(); !strings.Contains(found, "wait below the ids up to which relays have read") {
			t.Errorf("two messages wait below the marks, but the check reports %q", found)
		}
		mark(1_000_000)
		if found := detail(); !strings.Contains(found, "the id sequence was reset: lane") {
			t.Errorf("the marks are above all ids, but the check reports %q", found)
		}
	})
}
