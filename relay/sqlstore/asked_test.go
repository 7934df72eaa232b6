package sqlstore_test

import (
	"database/sql/driver"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// asked returns the statements that the table's backend runs when do calls it. The function answer
// returns the rows that a statement selects. If answer is nil, no statement selects rows.
func asked(t testing.TB, table table, answer func(query string) [][]driver.Value, do func(backend.Backend)) []backend.Query {
	t.Helper()
	recorder := &backendtest.Recorder{Answer: answer}
	db := recorder.DB()
	defer func() { _ = db.Close() }()
	do(table.open(t).BackendOn(db))
	return recorder.Taken()
}

// askedLast returns the last statement that the backend runs. Statements select no rows.
func askedLast(t testing.TB, table table, do func(backend.Backend)) backend.Query {
	t.Helper()
	queries := asked(t, table, nil, do)
	return queries[len(queries)-1]
}

// askedAfterALongOne makes the same call twice, and returns the last statement of the second call. The first call takes so long,
// on the clock of a synctest bubble, that the backend makes the server plan the second call's statement again.
func askedAfterALongOne(t *testing.T, table table, do func(backend.Backend)) (query backend.Query) {
	t.Helper()
	store := table.open(t)
	synctest.Test(t, func(*testing.T) {
		takes := 101 * time.Millisecond
		recorder := &backendtest.Recorder{Answer: func(string) [][]driver.Value { time.Sleep(takes); return nil }}
		db := recorder.DB()
		defer db.Close()
		b := store.BackendOn(db)
		do(b)
		takes = 0
		do(b)
		queries := recorder.Taken()
		query = queries[len(queries)-1]
	})
	return query
}

// everything returns the rows that a statement selects. With these rows a backend runs all statements of a
// call: all lanes have valid leases with the fence 1, and searches find rows.
func everything(query string) (rows [][]driver.Value) {
	switch {
	case strings.HasPrefix(query, "SELECT 'lane'"):
		for lane := range storage.Lanes {
			rows = append(rows, []driver.Value{"lane", int64(lane), int64(1)})
		}
	case strings.HasPrefix(query, "SELECT id FROM"), strings.HasPrefix(query, "SELECT t.id FROM"), strings.HasPrefix(query, "SELECT t.id * 64"):
		rows = [][]driver.Value{{int64(65)}, {int64(130)}}
	}
	return rows
}

// thirds returns settlements of the rows 1 to count. A third of them settles pending rows as done, a third
// settles pending rows as retries, and a third settles deferred rows as done.
func thirds(count int, token string, receipts bool) (settlements []storage.Settlement) {
	for i := range count {
		s := storage.Settlement{ID: int64(i + 1), MessageID: aMessage, Lane: i / 8, Fence: 1, Token: token, Deferred: i%3 == 2}
		s.State = []storage.State{storage.StateDone, storage.StateRetry, storage.StateDone}[i%3]
		if receipts {
			s.Receipt = strconv.Itoa(i)
		}
		settlements = append(settlements, s)
	}
	return settlements
}
