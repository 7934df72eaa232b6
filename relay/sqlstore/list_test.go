package sqlstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A listing with LookThrough examines about LookThrough rows of each table, for each state. It finds rows
// with higher ids only if AfterID is higher. Without LookThrough a listing finds all rows.
func TestLookThroughLimitsTheRowsThatListReads(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Kind != testdb.SQLite && !isMySQL(target.Kind) {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			migrate(t, table.DB, table.dialect, migrations.Options{})
			fillEachState(t, table)
			store := table.open(t)
			table.DB.SetMaxOpenConns(1) // the server counts reads per session
			for _, test := range []struct {
				filter storage.Filter
				want   string
			}{
				{storage.Filter{Topic: "rare"}, "[2000 4000 6000 8000]"},
				{storage.Filter{Topic: "rare", LookThrough: 100}, "[]"},
				{storage.Filter{Topic: "rare", LookThrough: 100, AfterID: 1950}, "[2000]"},
				{storage.Filter{Topic: "rare", LookThrough: 100, AfterID: 5950, State: storage.StateError}, "[6000]"},
				{storage.Filter{Topic: "rare", LookThrough: 100, State: storage.StateDone, AfterID: 5950}, "[]"},
				{storage.Filter{Topic: "rare", LookThrough: 2500, State: storage.StateDone}, "[8000]"},
				{storage.Filter{Key: "k", State: storage.StateRetry, LookThrough: 100, Limit: 2}, "[2001 2002]"},
				{storage.Filter{State: storage.StateClaimed, LookThrough: 100}, "[]"},
				{storage.Filter{State: storage.StateScheduled, LookThrough: 100}, "[]"},
				{storage.Filter{Limit: 3, AfterID: 1998}, "[1999 2000 2001]"},
				{storage.Filter{IDs: []string{"7", "6000"}}, "[7 6000]"},
			} {
				before := readsOf(t, table)
				test.filter.NoPayloads = true
				found, err := store.List(t.Context(), test.filter)
				if err != nil {
					t.Fatal(err)
				}
				reads := readsOf(t, table) - before
				if got := fmt.Sprint(backend.Column(found, func(info *storage.Info) int64 { return info.ID })); got != test.want {
					t.Errorf("%+v: %s, want %s", test.filter, got, test.want)
				}
				if test.filter.LookThrough == 100 && reads > 2000 {
					t.Errorf("%+v read %d rows", test.filter, reads)
				}
				for _, info := range found {
					if len(info.Message.Payload) > 0 {
						t.Errorf("%+v returns a payload despite NoPayloads", test.filter)
					}
				}
			}
			full, err := store.List(t.Context(), storage.Filter{IDs: []string{"6000"}})
			if err != nil || len(full) != 1 || string(full[0].Message.Payload) != "payload" {
				t.Errorf("listed with payloads: %+v, %v; want one row with its payload", full, err)
			}
		})
	}
}

// fillEachState writes 2,000 pending messages, 2,000 retries, 2,000 parked and 2,000 done messages, in this
// order of ids. The last message of each state has the topic "rare".
func fillEachState(t *testing.T, table table) {
	t.Helper()
	for i, into := range []string{
		"outbox (id, lane, message_id, topic, message_key, payload, priority, attempts, crashes) SELECT i, 1",
		"outbox_held (id, lane, state, available_at, message_id, topic, message_key, payload, priority, attempts, crashes, created_at) SELECT i, 1, 'retry', '2100-01-01 00:00:00.000'",
		"outbox_held (id, lane, state, available_at, message_id, topic, message_key, payload, priority, attempts, crashes, created_at) SELECT i, 1, 'error', '2100-01-01 00:00:00.000'",
		"outbox_done (id, lane, finished_at, message_id, topic, message_key, payload, priority, attempts, crashes, created_at) SELECT i, 1, '2026-01-01 00:00:00.000'",
	} {
		key, created := "'k'", ", '2026-01-01 00:00:00.000'"
		if i == 0 {
			key, created = "NULL", ""             // pending rows may have any lane
			if table.dialect.Name() == "sqlite" { // SQLite computes the lane
				into = strings.Replace(strings.Replace(into, "lane, ", "", 1), "i, 1", "i", 1)
			}
		}
		first, last := 2000*i+1, 2000*i+2000
		numbers := fmt.Sprintf("WITH RECURSIVE d (j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM d WHERE j < 49), n (i) AS (SELECT %d + 40 * a.j + b.j FROM d AS a, d AS b WHERE b.j < 40) ", first)
		statement := "INSERT INTO " + into + fmt.Sprintf(", '%s', CASE WHEN i = %d THEN 'rare' ELSE 't' END, %s, 'payload', 0, 0, 0%s FROM n", aMessage, last, key, created)
		if table.dialect.Name() == "sqlite" {
			exec(t, table.DB, numbers+statement)
			continue
		}
		exec(t, table.DB, strings.Replace(statement, " SELECT i", " "+numbers+"SELECT i", 1))
	}
}

// readsOf returns how many rows the connection has read on MySQL and MariaDB, and 0 on other databases.
func readsOf(t *testing.T, table table) (reads int) {
	t.Helper()
	if !isMySQL(table.dialect.Name()) {
		return 0
	}
	rows, err := table.DB.Query("SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		reads += n
	}
	return reads
}

// On SQLite a listing reads the tables in the order of ids and merges them, without sorting.
func TestListPlansOnSQLite(t *testing.T) {
	t.Parallel()
	for _, target := range onSQLite() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			migrate(t, table.DB, table.dialect, migrations.Options{Claim: "rows"})
			for name, filter := range map[string]backend.Filter{
				"all":           {Filter: storage.Filter{Limit: 100}},
				"topic":         {Filter: storage.Filter{Limit: 100, Topic: "t", LookThrough: 20_000}},
				"pending":       {Filter: storage.Filter{Limit: 100, State: storage.StatePending, LookThrough: 20_000}},
				"parked":        {Filter: storage.Filter{Limit: 100, State: storage.StateError, LookThrough: 20_000}},
				"parked, all":   {Filter: storage.Filter{Limit: 100, State: storage.StateError}},
				"by id":         {Filter: storage.Filter{Limit: 100}, ByID: true, RowIDs: []int64{7}},
				"without bytes": {Filter: storage.Filter{Limit: 100, NoPayloads: true}},
			} {
				query := askedLast(t, table, func(b backend.Backend) { _, _ = b.List(t.Context(), filter) })
				if plan := sqlitePlan(t, table, query); strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "SCAN t") || !strings.Contains(plan, "SEARCH t") {
					t.Errorf("%s: %s%s", name, plan, query.SQL)
				}
			}
		})
	}
}
