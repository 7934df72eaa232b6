package sqlstore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	shown "github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// malformed returns values that a relay can't read, and that columns can hold if no constraint refuses them.
func malformed(kind string) []struct{ column, value string } {
	type c = struct{ column, value string }
	switch kind {
	case testdb.Postgres:
		return []c{
			{"created_at", "'infinity'"}, {"created_at", "'-infinity'"}, {"created_at", "'10000-01-01 00:00:00+00'"}, {"created_at", "'4713-01-01 00:00:00+00 BC'"},
			{"created_at", "'9999-12-31 23:59:59-01'"}, {"available_at", "'4713-01-01 00:00:00+00 BC'"}, {"available_at", "'-infinity'"},
		}
	case testdb.SQLite:
		return []c{
			{"attempts", "'many'"}, {"attempts", "1.5"}, {"crashes", "'many'"}, {"crashes", "x'00'"}, {"priority", "'high'"},
			{"created_at", "'today'"}, {"created_at", "12"}, {"expires_at", "'2026-02-31 00:00:00'"}, {"available_at", "'2026-00-15 00:00:00'"},
		}
	default:
		return []c{
			{"available_at", "'2026-00-15'"}, {"available_at", "'2026-03-00'"}, {"available_at", "'2026-02-31'"}, {"available_at", "'0000-00-00'"},
			{"expires_at", "'2026-00-15'"}, {"expires_at", "'2026-02-31'"}, {"expires_at", "'0000-00-00'"},
			{"created_at", "'2026-00-15'"}, {"created_at", "'2026-02-31'"}, {"created_at", "'0000-00-00'"},
		}
	}
}

// insertMalformed writes a row with each malformed value, with the constraints switched off or dropped, and returns the number of
// rows. On MariaDB only the session ignores the constraints, so the table may refuse changes of these rows.
func insertMalformed(t *testing.T, table table) (count int) {
	t.Helper()
	var before []string
	switch table.Kind {
	case testdb.Postgres:
		before = []string{"ALTER TABLE outbox DROP CONSTRAINT available_at_range, DROP CONSTRAINT created_at_range"}
	case testdb.SQLite:
		before = []string{"PRAGMA ignore_check_constraints = ON"}
	case testdb.MySQL:
		before = []string{"ALTER TABLE outbox ALTER CHECK outbox_real_available_at NOT ENFORCED, ALTER CHECK outbox_real_expires_at NOT ENFORCED, ALTER CHECK outbox_real_created_at NOT ENFORCED", "SET sql_mode = 'ALLOW_INVALID_DATES'"}
	case testdb.MariaDB:
		before = []string{"SET check_constraint_checks = 0", "SET sql_mode = 'ALLOW_INVALID_DATES'"}
	}
	pool := table.OpenAnother(t)
	pool.SetMaxOpenConns(1) // the settings apply to one session
	for _, statement := range before {
		exec(t, pool, statement)
	}
	for _, bad := range malformed(table.Kind) {
		exec(t, pool, "INSERT INTO outbox (topic, message_key, "+bad.column+") VALUES ('t', 'bad', "+bad.value+")")
		count++
	}
	return count
}

// A table's constraints refuse values that a relay can't read, with any sql_mode of the session.
func TestConstraintsRefuseUnreadableValues(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		pool := table.OpenAnother(t)
		pool.SetMaxOpenConns(1)
		more := []struct{ column, value string }{{"id", "-1"}, {"attempts", "-1"}, {"crashes", "-1"}}
		switch {
		case isMySQL(table.Kind):
			exec(t, pool, "SET sql_mode = 'ALLOW_INVALID_DATES'")
			more = more[1:] // MySQL replaces a negative id, see below
		default:
			more = append(more, []struct{ column, value string }{{"id", "0"}, {"id", "9223372036854775807"}}...)
		}
		for _, bad := range append(malformed(table.Kind), more...) {
			if _, err := pool.ExecContext(t.Context(), "INSERT INTO outbox (topic, "+bad.column+") VALUES ('t', "+bad.value+")"); err == nil {
				t.Errorf("%s = %s was accepted", bad.column, bad.value)
			}
		}
		if !isMySQL(table.Kind) {
			return
		}
		if _, err := table.DB.ExecContext(t.Context(), "INSERT INTO outbox (id, topic) VALUES (-1, 't')"); err == nil {
			t.Error("a negative id was accepted")
		}
		exec(t, pool, "INSERT INTO outbox (id, topic) VALUES (-1, 't')")
		var id int64
		if err := table.DB.QueryRowContext(t.Context(), "SELECT id FROM outbox").Scan(&id); err != nil || id <= 0 {
			t.Errorf("without strict mode the row got the id %d, %v; want one that the server assigned", id, err)
		}
	})
}

// A row with a malformed value doesn't prevent the delivery of other rows. The store returns it with the
// reason, and it can be parked, listed, shown and requeued like other rows.
func TestRowThatCannotBeReadIsParkedAlone(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, target := range append(allTargets(), aNativePostgres(t)) {
			t.Run(string(claim)+"/"+target.Name, func(t *testing.T) {
				t.Parallel()
				table := open(t, target)
				count := insertMalformed(t, table)
				exec(t, table.DB, "INSERT INTO outbox (topic, message_key, attempts, crashes) VALUES ('t', 'good', 2147483647, 2147483647)")
				store := table.open(t)
				must(t, store.SetClaimMode(t.Context(), claim))
				settlements := parkMalformed(t, store, claim)
				if len(settlements) != count+1 {
					t.Fatalf("%d rows were read, want %d", len(settlements), count+1)
				}
				if settled, err := store.Settle(t.Context(), "r", true, settlements); err != nil || settled.Changed != len(settlements) {
					t.Fatalf("settle: %+v, %v", settled, err)
				}
				infos, err := store.List(t.Context(), storage.Filter{Limit: 100})
				if err != nil || len(infos) != len(settlements) {
					t.Fatalf("list: %d messages, %v; want %d", len(infos), err, len(settlements))
				}
				for _, info := range infos {
					if _, err := json.Marshal(shown.NewFullMessage(info)); err != nil {
						t.Errorf("message %d: %v", info.ID, err)
					}
					if info.State == storage.StateError && !strings.Contains(info.LastError, "can't be read") {
						t.Errorf("message %d is parked with %q", info.ID, info.LastError)
					}
				}
				if requeued, err := store.Requeue(t.Context(), storage.Filter{State: storage.StateError}); err != nil || requeued != count {
					t.Errorf("requeue: %d, %v; want %d", requeued, err, count)
				}
			})
		}
	}
}

// parkMalformed reads all rows, and returns a relay's settlements: good rows are delivered, and
// malformed rows are parked with the reason.
func parkMalformed(t *testing.T, store *sqlstore.Store, claim storage.Claim) (settlements []storage.Settlement) {
	t.Helper()
	fences, rows := map[int]int64{}, []storage.Row(nil)
	_, err := store.Heartbeat(t.Context(), storage.Identity{Name: "r", Claim: claim}, time.Minute)
	must(t, err)
	if claim == storage.ByRows {
		rows, err = store.Claim(t.Context(), storage.ClaimRequest{Relay: "r", Token: "token", TTL: time.Minute, Limit: 100, Pick: storage.Oldest})
		must(t, err)
	} else {
		grants, err := store.Acquire(t.Context(), "r", storage.Lanes, time.Minute)
		must(t, err)
		var positions []storage.Position
		for _, grant := range grants {
			fences[grant.Lane] = grant.Fence
			positions = append(positions, storage.Position{Lane: grant.Lane})
		}
		page, err := store.Read(t.Context(), storage.ReadRequest{Positions: positions, Limit: 1000, MaxBytes: 1 << 20})
		must(t, err)
		rows = page.Rows
	}
	for _, row := range rows {
		settlement := storage.Settlement{ID: row.ID, MessageID: row.Message.ID, Lane: row.Lane, Fence: fences[row.Lane], Attempts: row.Attempts + 1, Crashes: row.Crashes}
		if claim == storage.ByRows {
			settlement.Token = "token"
		}
		if settlement.State = storage.StateDone; row.Malformed != "" {
			settlement.State, settlement.Error = storage.StateError, row.Malformed
		}
		if row.Later || (row.Malformed == "") != (row.Message.Key == "good") {
			t.Errorf("row %d of key %s has Later %t and Malformed %q", row.ID, row.Message.Key, row.Later, row.Malformed)
		}
		settlements = append(settlements, settlement)
	}
	return settlements
}

// Delivered messages with malformed values are listed, exported, replayed and purged like others. On SQLite a replay refuses the
// message whose priority is no number, and copies the others.
func TestDeliveredRowThatCannotBeReadAffectsNoOthers(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		store := table.open(t)
		bad := malformed(table.Kind)
		for range len(bad) + 1 {
			exec(t, table.DB, "INSERT INTO outbox (topic, message_key) VALUES ('t', 'good')")
		}
		settled, err := store.Settle(t.Context(), "r", true, parkMalformed(t, store, storage.ByLanes))
		if err != nil || settled.Changed != len(bad)+1 {
			t.Fatalf("settle: %+v, %v", settled, err)
		}
		pool := table.OpenAnother(t)
		pool.SetMaxOpenConns(1)
		if isMySQL(table.Kind) {
			exec(t, pool, "SET sql_mode = 'ALLOW_INVALID_DATES'")
		}
		infos, err := store.List(t.Context(), storage.Filter{State: storage.StateDone, Limit: 100})
		must(t, err)
		for i, value := range bad {
			exec(t, pool, fmt.Sprintf("UPDATE outbox_done SET %s = %s WHERE id = %d", value.column, value.value, infos[i].ID))
		}
		infos, err = store.List(t.Context(), storage.Filter{State: storage.StateDone, Limit: 100})
		if err != nil || len(infos) != len(bad)+1 {
			t.Fatalf("list: %d messages, %v; want %d", len(infos), err, len(bad)+1)
		}
		for _, info := range infos {
			if _, err := json.Marshal(shown.NewFullMessage(info)); err != nil {
				t.Errorf("message %d: %v", info.ID, err)
			}
		}
		last, err := store.LastDelivered(t.Context(), storage.Filter{Limit: 100}, time.Time{})
		if err != nil || len(last) != len(bad)+1 {
			t.Errorf("the last delivered: %d messages, %v; want %d", len(last), err, len(bad)+1)
		}
		replay, err := store.StoreReplay(t.Context(), nil, storage.Replay{Name: "again"})
		must(t, err)
		for !replay.Finished {
			replay, _, err = store.Replay(t.Context(), replay, 100)
			must(t, err)
		}
		refused := map[string]int64{testdb.SQLite: 1}[table.Kind] // the message whose priority is no number
		if replay.Refused != refused || replay.Written != int64(len(bad)+1)-refused {
			t.Errorf("replay: %+v; want %d copies, %d of them refused", replay, len(bad)+1, refused)
		}
		if purged, err := store.Purge(t.Context(), 0, 100); err != nil || purged != len(bad)+1 {
			t.Errorf("purge: %d, %v; want %d", purged, err, len(bad)+1)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
