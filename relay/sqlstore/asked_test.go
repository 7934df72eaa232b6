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

// asked returns the statements by which a table's backend does something. The answer
// says what a statement selects; nil if nothing has to.
func asked(t testing.TB, table table, answer func(query string) [][]driver.Value, do func(backend.Backend)) []backend.Query {
	t.Helper()
	recorder := &backendtest.Recorder{Answer: answer}
	db := recorder.DB()
	defer func() { _ = db.Close() }()
	do(table.open(t).BackendOn(db))
	return recorder.Taken()
}

// askedLast returns the last of them.
func askedLast(t testing.TB, table table, do func(backend.Backend)) backend.Query {
	t.Helper()
	queries := asked(t, table, nil, do)
	return queries[len(queries)-1]
}

// askedAfterALongOne returns it where one before took long, whose plan isn't trusted any more. The time is a bubble's.
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

// everything answers so that a backend does all that it would do: all leases hold that
// have the fence 1, and rows are found.
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

// thirds are settlements of rows with the ids from 1 on, of which a third each is done,
// retried, and was held and is done.
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
