package sqlstore_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A scan of a range of ids reads no index entries above the range. If the upper bound compared whole index
// keys, PostgreSQL would end the range only where the first column, the lane, ends. Each step over a
// backlog of millions would then read to the end of each lane.
func TestScanReadsNoIndexEntriesAboveItsRange(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		exec(t, table.DB, "ALTER TABLE outbox SET (autovacuum_enabled = off)")
		fill(t, table.DB, 200_000)
		exec(t, table.DB, "VACUUM ANALYZE outbox")
		var positions []storage.Position
		for lane := range 64 {
			positions = append(positions, storage.Position{Lane: lane, Until: 64})
		}
		conn, err := table.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		plans := prepare(t, conn, map[string]backend.Query{
			"read": askedLast(t, table, func(b backend.Backend) {
				_, _ = b.Read(t.Context(), backend.Read{Positions: positions, Limit: 500}, nil)
			}),
			"candidates": table.open(t).BackendOn(nil).Candidates(positions, []string{"t"}, 500),
		})
		for what := range plans.statements {
			plan := strings.Join(plans.do(t, "EXPLAIN (ANALYZE, BUFFERS) "+plans.execute(what)), "\n")
			pages := 0
			if hit := hits.FindStringSubmatch(plan); hit != nil {
				pages, _ = strconv.Atoi(hit[1])
			}
			if pages == 0 || pages > 64*6 { // a lookup reads 2 or 3 index pages and the row's page; a lane has more than 12 pages
				t.Errorf("%s reads %d pages for 64 rows\n%s", what, pages, plan)
			}
		}
	})
}

var hits = regexp.MustCompile(`Buffers: shared hit=(\d+)`)
