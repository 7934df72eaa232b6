package sqlstore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Find returns a message by its id, whichever table its row is in. If the id contains a time, Find reads
// only rows that were written around that time, otherwise all rows. Found.Until is the id up to which it
// searched.
func TestMessagesAreFoundByTheTimeOfTheirIDs(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		switch target.Kind {
		case testdb.Postgres, testdb.MySQL, testdb.MariaDB, testdb.SQLite:
		default:
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			migrate(t, table.DB, table.dialect, migrations.Options{})
			const each = 3000 // the number of delivered rows, of parked rows and of pending rows, in this order of ids, one row a minute
			first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			written := func(id int) time.Time { return first.Add(time.Duration(id) * time.Minute) }
			version7 := func(at time.Time, n int) string {
				ms := fmt.Sprintf("%012x", at.UnixMilli())
				return fmt.Sprintf("%s-%s-7000-8000-%012x", ms[:8], ms[8:], n)
			}
			version1 := func(at time.Time, n int) string {
				ticks := fmt.Sprintf("%015x", at.UnixNano()/100+0x01b21dd213814000)
				return fmt.Sprintf("%s-%s-1%s-8000-%012x", ticks[7:], ticks[3:7], ticks[:3], n)
			}
			ids := map[int]string{}
			for id := 1; id <= 3*each; id++ {
				switch id {
				case 1, 2, 1234, each, each + 1, each + 777, 2*each + 1, 2*each + 1500, 3 * each:
					ids[id] = version7(written(id).Add(20*time.Second), id)
				case 1235, 2*each + 1501:
					ids[id] = version1(written(id).Add(-time.Second), id)
				case 1236, each + 778: // an id that was made long before the row was written
					ids[id] = version7(written(id).AddDate(-1, 0, 0), id)
				case 1237, 2*each + 1502: // an id that contains no time
					ids[id] = fmt.Sprintf("7fffffff-0000-4000-8000-%012x", id)
				}
			}
			for i, into := range []string{
				"outbox_done (id, message_id, created_at, finished_at, topic, payload_text, priority, attempts, crashes, lane) VALUES ",
				"outbox_held (id, message_id, created_at, state, topic, payload_text, priority, attempts, crashes, lane) VALUES ",
				"outbox (id, message_id, created_at, topic, payload_text) VALUES ",
			} {
				var values []string
				for id := each*i + 1; id <= each*(i+1); id++ {
					message, at := ids[id], written(id).Format("2006-01-02 15:04:05.000")
					if message == "" {
						message = fmt.Sprintf("00000000-0000-4000-8000-%012x", id)
					}
					more := []string{", '" + at + "', 't', '', 0, 1, 0, 1)", ", 'error', 't', '', 0, 1, 0, 1)", ", 't', '')"}[i]
					values = append(values, fmt.Sprintf("(%d, '%s', '%s'", id, message, at)+more)
				}
				exec(t, table.DB, "INSERT INTO "+into+strings.Join(values, ", "))
			}
			if target.Kind == testdb.Postgres { // an INSERT with an explicit id doesn't advance the sequence
				exec(t, table.DB, fmt.Sprintf("SELECT setval(pg_get_serial_sequence('outbox', 'id'), %d)", 3*each))
			}
			store := table.open(t)
			table.DB.SetMaxOpenConns(1) // the server counts the rows that one session reads
			find := func(filter storage.Filter, patience time.Duration) (string, storage.Found) {
				found, err := store.Find(t.Context(), filter, patience)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(backend.Column(found.Infos, func(info *storage.Info) int64 { return info.ID })), found
			}
			for id, message := range ids {
				timed := strings.Contains(message, "-7000-") && id%100 != 36 && id%1000 != 778 || strings.Contains(message, "-8000-") && message[14] == '1'
				patience := time.Duration(0)
				if timed { // no time to search later rows
					patience = 1
				}
				before := readsOf(t, table)
				got, found := find(storage.Filter{IDs: []string{strings.ToUpper(message)}}, patience)
				if got != fmt.Sprintf("[%d]", id) || !strings.EqualFold(found.Infos[0].Message.ID, message) {
					t.Errorf("find %s: got the rows %s, want the row %d", message, got, id)
				}
				if reads := readsOf(t, table) - before; timed && reads > each/4 {
					t.Errorf("find %s: %d rows were read", message, reads)
				}
				if timed == found.All() && id < 3*each-100 {
					t.Errorf("find %s: it searched up to id %d; the last id is %d", message, found.Until, found.Last)
				}
			}
			before := readsOf(t, table)
			got, found := find(storage.Filter{IDs: []string{version7(written(3*each-10), 0)}}, 1)
			if reads := readsOf(t, table) - before; got != "[]" || !found.All() || reads > each/4 {
				t.Errorf("find a message id that was never written: got the rows %s, it searched up to id %d of %d, and %d rows were read", got, found.Until, found.Last, reads)
			}
			// A later copy of a message, as a replay writes it, is found by a search without a time limit, or
			// by continuing a search that stopped at its time limit.
			const again = 3*each + 1
			exec(t, table.DB, fmt.Sprintf("INSERT INTO outbox (id, message_id, created_at, topic, payload_text) VALUES (%d, '%s', '%s', 't', '')", again, ids[1], written(again).Format("2006-01-02 15:04:05.000")))
			if target.Kind == testdb.Postgres {
				exec(t, table.DB, fmt.Sprintf("SELECT setval(pg_get_serial_sequence('outbox', 'id'), %d)", again))
			}
			if got, found := find(storage.Filter{IDs: []string{ids[1]}}, 0); got != fmt.Sprint([]int{1, again}) || !found.All() {
				t.Errorf("find a message and its copy: got the rows %s, it searched up to id %d of %d", got, found.Until, found.Last)
			}
			got, found = find(storage.Filter{IDs: []string{ids[1]}}, 1)
			for rounds := 0; !found.All() && rounds < 10; rounds++ {
				var more string
				more, found = find(storage.Filter{IDs: []string{ids[1]}, AfterID: found.Until}, 1)
				got += more
			}
			if got = strings.ReplaceAll(got, "[]", ""); got != fmt.Sprintf("[1][%d]", again) || !found.All() {
				t.Errorf("find a message and its copy in several calls: got the rows %s, they searched up to id %d of %d", got, found.Until, found.Last)
			}
			exec(t, table.DB, fmt.Sprint("DELETE FROM outbox WHERE id = ", again))
			if got, _ := find(storage.Filter{IDs: slices.Collect(maps.Values(ids))}, 0); got != fmt.Sprint(slices.Sorted(maps.Keys(ids))) {
				t.Errorf("find all ids in one call: got the rows %s", got)
			}
			three := storage.Filter{IDs: []string{ids[2*each+1], ids[1237], ids[1], "5", "7fffffff-0000-4000-8000-ffffffffffff"}}
			for _, test := range []struct {
				change func(*storage.Filter)
				want   string
			}{
				{func(*storage.Filter) {}, fmt.Sprint([]int{1, 5, 1237, 2*each + 1})},
				{func(f *storage.Filter) { f.Limit = 2 }, "[1 5]"},
				{func(f *storage.Filter) { f.IDs = []string{"1", ids[1], ids[1], "1"} }, "[1]"},
				{func(f *storage.Filter) { f.AfterID = 5 }, fmt.Sprint([]int{1237, 2*each + 1})},
				{func(f *storage.Filter) { f.State = storage.StateDone }, "[1 5 1237]"},
				{func(f *storage.Filter) { f.Topic = "other" }, "[]"},
			} {
				filter := three
				test.change(&filter)
				if got, _ := find(filter, 0); got != test.want {
					t.Errorf("%+v: %s; want %s", filter, got, test.want)
				}
			}
			for _, patience := range []time.Duration{0, 1} {
				pages, filter := "", three
				filter.Limit = 1
				for more := true; more; {
					page, found := find(filter, patience)
					if pages += page; !found.All() && found.Until <= filter.AfterID {
						t.Fatalf("after %s: the search does not advance beyond %d", pages, found.Until)
					}
					more, filter.AfterID = !found.All(), found.Until
				}
				if pages = strings.ReplaceAll(pages, "[]", ""); pages != fmt.Sprintf("[1][5][1237][%d]", 2*each+1) {
					t.Errorf("find with pages of one message: got the rows %s", pages)
				}
			}
		})
	}
}
