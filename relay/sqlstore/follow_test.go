package sqlstore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// LastDelivered returns the newest deliveries first, and reads them in the order of the index on finished_at.
func TestLastDeliveredBeginsWithTheNewest(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			migrate(t, table.DB, table.dialect, migrations.Options{})
			for i, row := range []string{
				"(7, 1, '" + aMessage + "', 'a', 'k', '', 0, 0, 2, '2026-01-01 10:00:00.000', '2026-01-01 10:00:09.000')",
				"(8, 2, '" + aMessage + "', 'b', NULL, 'web', 0, 0, 0, '2026-01-01 10:00:01.000', '2026-01-01 10:00:03.500')",
				"(9, 3, '" + aMessage + "', 'a', 'l', '', 0, 0, 0, '2026-01-01 10:00:02.000', '2026-01-01 10:00:04.000')",
			} {
				if _, err := table.DB.Exec("INSERT INTO outbox_done (id, lane, message_id, topic, message_key, sinks, priority, crashes, attempts, created_at, finished_at) VALUES " + row); err != nil {
					t.Fatal(i, err)
				}
			}
			noon := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
			store := table.open(t)
			for _, test := range []struct {
				filter storage.Filter
				since  time.Time
				want   []int64
			}{
				{storage.Filter{}, time.Time{}, []int64{7, 9, 8}},
				{storage.Filter{Limit: 2}, noon, []int64{7, 9}},
				{storage.Filter{}, noon.Add(4 * time.Second), []int64{7, 9}},
				{storage.Filter{Topic: "a"}, noon, []int64{7, 9}},
				{storage.Filter{Key: "l"}, noon, []int64{9}},
				{storage.Filter{Sink: "web"}, noon, []int64{8}},
				{storage.Filter{}, noon.Add(time.Minute), nil},
			} {
				found, err := store.LastDelivered(t.Context(), test.filter, test.since)
				if err != nil {
					t.Fatal(err)
				}
				if got := backend.Column(found, func(info *storage.Info) int64 { return info.ID }); !slices.Equal(got, test.want) {
					t.Errorf("%+v since %v: %v, want %v", test.filter, test.since, got, test.want)
				}
				for _, info := range found {
					if info.ID == 8 && (info.Message.ID != aMessage || info.Message.Topic != "b" || info.Sinks != "web" || !info.CreatedAt.Equal(noon.Add(time.Second)) || !info.FinishedAt.Equal(noon.Add(3500*time.Millisecond)) || info.State != storage.StateDone) {
						t.Errorf("row 8 is returned as %+v", info)
					}
				}
			}
			if target.Kind == testdb.SQLite {
				query := askedLast(t, table, func(b backend.Backend) {
					_, _ = b.LastDelivered(t.Context(), backend.Filter{Filter: storage.Filter{Limit: 5}, DoneSince: noon})
				})
				if plan := sqlitePlan(t, table, query); !strings.Contains(plan, "SEARCH t USING INDEX outbox_done_finished (finished_at>?)") || strings.Contains(plan, "TEMP B-TREE") {
					t.Error(plan)
				}
			}
		})
	}
}
