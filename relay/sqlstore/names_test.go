package sqlstore_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// All calls work on a table whose name has a schema and must be quoted.
func TestTableWithASchemaAndAQuotedName(t *testing.T) {
	names := map[string]string{testdb.Postgres: "app.Events", testdb.SQLite: "main.Events"}
	eachTable(t, func(t *testing.T, table table) {
		if table.Kind == testdb.Postgres {
			exec(t, table.DB, "CREATE SCHEMA app")
		}
		name := names[table.Kind]
		if isMySQL(table.Kind) {
			name = schemaOf(t, table) + ".Events"
		}
		migrate(t, table.DB, table.dialect, migrations.Options{Table: name})
		store, err := sqlstore.Open(t.Context(), table.OpenAnother(t), table.dialect, sqlstore.Options{Table: name})
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := dialect.ParseTable(name)
		if err != nil {
			t.Fatal(err)
		}
		hot := parsed.Pending
		if isMySQL(table.Kind) {
			hot = parsed.Backquoted().Pending
		}
		u := user{t, store, map[int]int64{}}
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows, storage.ByLanes} {
			exec(t, table.DB, "INSERT INTO "+hot+" (topic, message_key) VALUES ('a', 'k'), ('b', 'l'), ('c', 'm'), ('d', 'n')")
			u.useAs(claim)
		}
		for _, finding := range sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{Table: name}, storage.ByLanes) {
			if !finding.OK && finding.Name != "transactions" && finding.Name != "transaction list" {
				t.Errorf("the check reports %+v", finding)
			}
		}
	})
}

// schemaOf returns the name of the test's database.
func schemaOf(t *testing.T, table table) (name string) {
	t.Helper()
	if err := table.DB.QueryRow("SELECT database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// user calls the store methods that a relay and an operator call.
type user struct {
	*testing.T
	store  *sqlstore.Store
	fences map[int]int64
}

func (u user) must(what string, err error) {
	u.Helper()
	if err != nil {
		u.Errorf("%s: %v", what, err)
	}
}

func (u user) useAs(claim storage.Claim) {
	u.Helper()
	u.must("set the claim mode", u.store.SetClaimMode(u.Context(), claim))
	_, err := u.store.Heartbeat(u.Context(), storage.Identity{Name: "u", Claim: claim}, time.Minute)
	u.must("heartbeat", err)
	rows, settle := u.readLanes, storage.Settlement{}
	if claim == storage.ByRows {
		rows, settle = u.claimRows, storage.Settlement{Token: "t"}
	}
	u.settleAll(rows(), settle)
	_, err = u.store.Requeue(u.Context(), storage.Filter{Topic: "c"})
	u.must("requeue", err)
	_, err = u.store.Discard(u.Context(), storage.Filter{})
	u.must("discard", err)
	if claim == storage.ByRows {
		_, err = u.store.Reclaim(u.Context(), 10)
		u.must("reclaim", err)
	}
	status, err := u.store.Status(u.Context())
	u.must("status", err)
	if status.Claim != claim || len(status.Relays) != 1 {
		u.Errorf("the status is %+v, want the claim mode and one relay", status)
	}
	infos, err := u.store.List(u.Context(), storage.Filter{})
	u.must("list", err)
	if !slices.ContainsFunc(infos, func(info storage.Info) bool { return info.State == storage.StateDone }) {
		u.Errorf("none of %d listed rows is done", len(infos))
	}
	_, err = u.store.Purge(u.Context(), 0, 10)
	u.must("purge", err)
	u.must("deregister", u.store.Deregister(u.Context(), "u"))
}

func (u user) readLanes() []storage.Row {
	u.Helper()
	grants, err := u.store.Acquire(u.Context(), "u", storage.Lanes, time.Minute)
	u.must("acquire", err)
	var positions []storage.Position
	var lanes []int
	for _, grant := range grants {
		u.fences[grant.Lane] = grant.Fence
		positions = append(positions, storage.Position{Lane: grant.Lane})
		lanes = append(lanes, grant.Lane)
	}
	page, err := u.store.Read(u.Context(), storage.ReadRequest{Positions: positions, Limit: 10, MaxBytes: 1000})
	u.must("read", err)
	scanned, _, err := u.store.Scan(u.Context(), positions, nil, func(storage.Candidate) bool { return true })
	u.must("scan", err)
	if len(scanned) != len(page.Rows) {
		u.Errorf("scanned %d rows, read %d", len(scanned), len(page.Rows))
	}
	_, err = u.store.BlockedKeys(u.Context(), lanes, 10)
	u.must("blocked keys", err)
	_, _, err = u.store.Due(u.Context(), lanes, storage.DueCursor{}, 10, 1000)
	u.must("due", err)
	return page.Rows
}

func (u user) claimRows() []storage.Row {
	u.Helper()
	rows, err := u.store.Claim(u.Context(), storage.ClaimRequest{Relay: "u", Token: "t", TTL: time.Minute, Limit: 4, Pick: storage.Newest})
	u.must("claim", err)
	var ids []int64
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	_, err = u.store.Extend(u.Context(), "t", ids, time.Minute)
	u.must("extend", err)
	return rows
}

func (u user) settleAll(rows []storage.Row, like storage.Settlement) {
	u.Helper()
	if len(rows) < 4 {
		u.Fatalf("got %d rows, want 4", len(rows))
	}
	if like.Token == "" {
		var renewals []storage.Renewal
		for lane, fence := range u.fences {
			renewals = append(renewals, storage.Renewal{Lease: storage.Lease{Lane: lane, Fence: fence}})
		}
		renewed, err := u.store.Renew(u.Context(), "u", renewals, time.Minute)
		if u.must("renew", err); len(renewed) != storage.Lanes {
			u.Errorf("%d lanes were renewed", len(renewed))
		}
	}
	states := []storage.State{storage.StateDone, storage.StateRetry, storage.StateError, storage.StateScheduled}
	var settlements []storage.Settlement
	for i, row := range rows[:4] {
		s := like
		s.ID, s.Lane, s.MessageID, s.Fence, s.State, s.Error = row.ID, row.Lane, row.Message.ID, u.fences[row.Lane], states[i], "it's\x00 \xff"
		settlements = append(settlements, s)
	}
	settled, err := u.store.Settle(u.Context(), "u", true, settlements)
	if err != nil || settled.Changed != 4 {
		u.Errorf("settled %+v, %v; want 4 changed", settled, err)
	}
}

func TestOpenWithoutSchemaNamesTheRemedy(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		for _, name := range []string{"nothing", "nowhere.outbox"} {
			_, err := sqlstore.Open(t.Context(), table.DB, table.dialect, sqlstore.Options{Table: name})
			if !errors.Is(err, storage.ErrNoSchema) || !strings.Contains(err.Error(), "rowrelay migrate up") {
				t.Errorf("open %s: %v, want an error that names the remedy", name, err)
			}
		}
		exec(t, table.DB, "UPDATE outbox_settings SET value = '99' WHERE name LIKE 'schema%'")
		if _, err := sqlstore.Open(t.Context(), table.DB, table.dialect, sqlstore.Options{}); !errors.Is(err, storage.ErrNoSchema) {
			t.Errorf("open a newer schema: %v, want %v", err, storage.ErrNoSchema)
		}
		if _, err := sqlstore.Open(t.Context(), table.DB, table.dialect, sqlstore.Options{Table: "no;table"}); err == nil {
			t.Error("a table name with a semicolon was accepted")
		}
	})
}

// A release uses the tables of a newer one if the setting schema_compatible allows it.
func TestOpenANewerSchemaThatIsCompatible(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		exec(t, table.DB, "UPDATE outbox_settings SET value = '99' WHERE name = 'schema'")
		exec(t, table.DB, "DELETE FROM outbox_settings WHERE name = 'schema_compatible'")
		exec(t, table.DB, "INSERT INTO outbox_settings (name, value) VALUES ('schema_compatible', 'x')")
		for _, test := range []struct {
			lowest string
			opens  bool
		}{{"1", true}, {strconv.Itoa(migrations.Version), true}, {strconv.Itoa(migrations.Version + 1), false}, {"", false}, {"all", false}} {
			exec(t, table.DB, "UPDATE outbox_settings SET value = '"+test.lowest+"' WHERE name = 'schema_compatible'")
			_, err := sqlstore.Open(t.Context(), table.DB, table.dialect, sqlstore.Options{})
			if test.opens != (err == nil) || err != nil && !errors.Is(err, storage.ErrNewerSchema) {
				t.Errorf("open a schema with version 99, compatible with %q: %v", test.lowest, err)
			}
		}
		exec(t, table.DB, "UPDATE outbox_settings SET value = '1' WHERE name = 'schema_compatible'")
		if found := sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, storage.ByLanes); !slices.Contains(found, sqlstore.Finding{Name: "schema", OK: true, Detail: "version 99"}) {
			t.Errorf("the check doesn't report version 99: %+v", found)
		}
	})
}

// The payload and headers of a plain INSERT are read unchanged, whether the parameters are texts or bytes.
func TestPlainInsertsKeepPayloadsAndHeaders(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		const payload = `C:\temp\x00 "quoted" ünïcode`
		holder := []string{"$1", "$2"}
		if table.Kind == testdb.SQLite || isMySQL(table.Kind) {
			holder = []string{"?", "?"}
		}
		values := "VALUES ('t', 'k', " + holder[0] + ", " + holder[1] + ")"
		exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload, headers) "+values, []byte(payload), `{"a":"b"}`)
		exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload_text, headers) "+values, payload, `{"n":[1]}`)
		if table.Kind == testdb.SQLite { // its columns accept values of any type, such as text in payload and bytes in payload_text
			exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload, headers) "+values, payload, nil)
			exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload_text, headers) "+values, []byte(payload), nil)
		}
		_, rows, _ := lease(t, table, "r")
		for _, row := range rows {
			if string(row.Message.Payload) != payload {
				t.Errorf("row %d has the payload %q", row.ID, row.Message.Payload)
			}
		}
		if got := rows[0].Message.Headers; len(got) != 1 || got["a"] != "b" || rows[0].Malformed != "" {
			t.Errorf("headers are %v, malformed: %q", got, rows[0].Malformed)
		}
		if rows[1].Malformed == "" || rows[1].Message.Headers != nil {
			t.Errorf("want a row with an array as a header to be malformed: %+v", rows[1])
		}
	})
}

// The session's time zone and default isolation level change no results.
func TestTimeZoneAndIsolationOfTheSessionChangeNothing(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		if table.Kind != testdb.Postgres {
			return
		}
		exec(t, table.DB, `DO $$ BEGIN EXECUTE 'ALTER DATABASE '||current_database()||' SET timezone = ''Asia/Kolkata''';
			EXECUTE 'ALTER DATABASE '||current_database()||' SET default_transaction_isolation = ''repeatable read'''; END $$`)
		exec(t, table.DB, "INSERT INTO outbox (topic, available_at) VALUES ('a', now() + interval '1 hour'), ('b', NULL)")
		store, rows, fences := lease(t, table, "r")
		if until := time.Until(rows[0].Message.AvailableAt); len(rows) != 2 || !rows[0].Later || until < 59*time.Minute || until > 61*time.Minute {
			t.Fatalf("rows are %+v", rows)
		}
		settlements := []storage.Settlement{done(rows[0], fences), done(rows[1], fences)}
		settlements[1].State = storage.StateScheduled
		if settled, err := store.Settle(t.Context(), "r", true, settlements); err != nil || settled.Changed != 2 {
			t.Errorf("settled %+v, %v", settled, err)
		}
		due, next, err := store.Due(t.Context(), []int{rows[1].Lane}, storage.DueCursor{}, 10, 1000)
		if err != nil || len(due) != 1 {
			t.Errorf("due are %d rows, %v", len(due), err)
		}
		if more, _, err := store.Due(t.Context(), []int{rows[1].Lane}, next, 10, 1000); err != nil || len(more) != 0 {
			t.Errorf("after the cursor %+v %d more rows are due, %v; want none", next, len(more), err)
		}
	})
}
