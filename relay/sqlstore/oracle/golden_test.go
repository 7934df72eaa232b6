package oracle_test

import (
	"database/sql"
	"database/sql/driver"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/oracle"
	"github.com/rowrelay/rowrelay/relay/storage"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// answer returns rows that make each method run all its statements.
func answer(query string) [][]driver.Value {
	switch {
	case strings.HasPrefix(query, "SELECT value FROM") && strings.HasSuffix(query, "FOR UPDATE"):
		return [][]driver.Value{{"another"}}
	case strings.HasPrefix(query, "SELECT name, 0, "):
		return [][]driver.Value{{"r", int64(0), "s"}}
	case strings.HasPrefix(query, "SELECT id FROM") && strings.Contains(query, "FOR UPDATE"):
		return [][]driver.Value{{int64(1)}, {int64(2)}}
	case strings.HasPrefix(query, "SELECT id, ROWIDTOCHAR"):
		return [][]driver.Value{{int64(1), "AAAR3sAAEAAAACXAAA"}, {int64(2), "AAAR3sAAEAAAACXAAB"}}
	case strings.Contains(query, "all_indexes"), strings.Contains(query, "user_indexes"):
		return [][]driver.Value{{int64(3)}}
	}
	return nil
}

// The statements equal the golden file.
func TestStatements(t *testing.T) {
	t.Parallel()
	recorder := &backendtest.Recorder{Answer: answer}
	queries := backendtest.Golden(t, "testdata/statements.sql", "", *update, recorder, dialect.Oracle(), func(db *sql.DB, table dialect.Table) backend.Backend {
		return oracle.New(db, dialect.Oracle(), table)
	})
	checkPlaces(t, queries...)
}

var (
	literals     = regexp.MustCompile(`'[^']*'`)
	placeholders = regexp.MustCompile(`:(\d+)`)
)

// checkPlaces requires that each parameter occurs once, in the order of the numbers, because drivers bind by
// position. A text may have at most 4000 bytes.
func checkPlaces(t *testing.T, queries ...backend.Query) {
	t.Helper()
	for _, query := range queries {
		found := placeholders.FindAllStringSubmatch(literals.ReplaceAllString(query.SQL, "''"), -1)
		if len(found) != len(query.Args) {
			t.Errorf("%d parameters for %d arguments in %s", len(found), len(query.Args), query.SQL)
		}
		for i, place := range found {
			if place[1] != strconv.Itoa(i+1) {
				t.Errorf("%s is parameter number %d of %s", place[0], i+1, query.SQL)
			}
		}
		for _, arg := range query.Args {
			if text, ok := arg.(string); ok && len(text) > 4000 {
				t.Errorf("a text of %d bytes would be a LONG", len(text))
			}
		}
	}
}

// settled returns the statements of Settle.
func settled(t *testing.T, settlements []storage.Settlement) []backend.Query {
	t.Helper()
	recorder := &backendtest.Recorder{Answer: answer}
	db := recorder.DB()
	defer func() { _ = db.Close() }()
	if _, err := oracle.New(db, dialect.Oracle(), backendtest.Table(t, "outbox")).Settle(t.Context(), nil, "r", true, settlements); err != nil {
		t.Fatal(err)
	}
	queries := recorder.Taken()
	checkPlaces(t, queries...)
	return queries
}

// Batches of all sizes use few different statement texts, and a long error is cut to 4000 bytes.
func TestSettleHasFewTextsForAllBatchSizes(t *testing.T) {
	t.Parallel()
	texts := map[string]bool{}
	for n := 1; n <= 1000; n += 37 {
		settlements := make([]storage.Settlement, n)
		for i := range settlements {
			settlements[i] = storage.Settlement{ID: int64(i), Lane: i % 64, Fence: 5, State: storage.StateDone, Receipt: fmt.Sprintf("0/%d", i)}
		}
		texts[settled(t, settlements)[2].SQL] = true
	}
	if len(texts) > 6 {
		t.Errorf("one statement has %d different texts, want at most 6", len(texts))
	}
	queries := settled(t, []storage.Settlement{{ID: 1, Fence: 1, State: storage.StateError, Error: strings.Repeat("ü", 3000)}})
	if joined := fmt.Sprint(queries[2].Args...); strings.Count(joined, "ü") != 2000 || strings.Contains(joined, `\ufffd`) {
		t.Errorf("%d letters of an error are kept, want 2000 whole letters, which fill 4000 bytes", strings.Count(joined, "ü"))
	}
}
