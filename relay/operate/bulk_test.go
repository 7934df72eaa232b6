package operate_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// table is an outbox table whose lanes the test has leased.
type table struct {
	*testing.T
	db     testdb.Database
	store  *sqlstore.Store
	fences map[int]int64
	read   []storage.Position
}

func openTable(t *testing.T, target testdb.Target) *table {
	t.Helper()
	o := &table{T: t, db: target.OpenOutbox(t), fences: map[int]int64{}}
	d, err := dialect.ByName(o.db.Kind)
	if err != nil {
		t.Fatal(err)
	}
	if o.store, err = sqlstore.Open(t.Context(), o.db.DB, d, sqlstore.Options{}); err != nil {
		t.Fatal(err)
	}
	grants, err := o.store.Acquire(t.Context(), "r", storage.Lanes, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, grant := range grants {
		o.fences[grant.Lane] = grant.Fence
		o.read = append(o.read, storage.Position{Lane: grant.Lane})
	}
	return o
}

// write writes one message and returns its row.
func (o *table) write(topic string) storage.Row {
	o.Helper()
	if _, err := o.db.DB.ExecContext(o.Context(), "INSERT INTO outbox (topic) VALUES ('"+topic+"')"); err != nil {
		o.Fatal(err)
	}
	page, err := o.store.Read(o.Context(), storage.ReadRequest{Positions: o.read, Limit: 1000, MaxBytes: 1 << 20})
	if err != nil {
		o.Fatal(err)
	}
	for _, row := range page.Rows {
		if row.Message.Topic == topic {
			return row
		}
	}
	o.Fatalf("the message of topic %s was not found", topic)
	return storage.Row{}
}

// park parks the row for all its sinks, or for one sink only.
func (o *table) park(row storage.Row, sink, left string) {
	o.Helper()
	settlement := storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: o.fences[row.Lane], Sinks: row.Sinks,
		State: storage.StateError, Attempts: 1, Error: "invalid", For: sink, Left: left}
	if _, err := o.store.Settle(o.Context(), "r", false, []storage.Settlement{settlement}); err != nil {
		o.Fatal(err)
	}
}

func (o *table) parked() (rows []string) {
	o.Helper()
	infos, err := o.store.List(o.Context(), storage.Filter{State: storage.StateError})
	if err != nil {
		o.Fatal(err)
	}
	for _, info := range infos {
		rows = append(rows, info.Message.Topic+info.Sinks)
	}
	slices.Sort(rows)
	return rows
}

// A bulk changes only the rows of its plan. After the plan was made, the test parks other rows: rows above and below the
// highest id of the plan, and a second row of one of the plan's messages, for another sink.
func TestABulkChangesOnlyTheRowsOfItsPlan(t *testing.T) {
	for _, target := range testdb.Each() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			o := openTable(t, target)
			o.park(o.write("first"), "", "")
			between := o.write("between")
			o.park(o.write("last"), "", "")
			parts := o.write("parts")
			o.park(parts, "one", "two")
			bulk := operate.Bulk{Action: operate.Discard}
			plan, err := bulk.Plan(t.Context(), o.store)
			if err != nil || plan.Count != 3 {
				t.Fatalf("the plan is %+v, %v", plan, err)
			}
			parts.Sinks = "two"
			o.park(parts, "", "")
			o.park(between, "", "")
			o.park(o.write("later"), "", "")
			if done, err := bulk.Run(t.Context(), o.store, plan, nil); err != nil || done != 3 || plan.Rest() != 0 {
				t.Errorf("discarded %d, %v, %d are left", done, err, plan.Rest())
			}
			if got, want := o.parked(), []string{"between", "later", "partstwo"}; !slices.Equal(got, want) {
				t.Errorf("the parked rows are %q, want %q", got, want)
			}
		})
	}
}

// crowd is an Operator with any number of parked messages.
type crowd struct {
	storage.Operator
	count, step int64
}

func (c crowd) Parked(_ context.Context, _ storage.Filter, _ int64, each func(storage.Parked)) error {
	for i := range c.count {
		each(storage.Parked{ID: i*c.step + 1, Topic: fmt.Sprint("topic ", i%3), Key: fmt.Sprint("a key of some length ", i)})
	}
	return nil
}

// A plan of many messages takes little memory, even if its ids are not contiguous.
func TestPlanOfManyMessagesIsSmall(t *testing.T) {
	for step, most := range map[int64]uint64{1: 1 << 20, 2: 32 << 20} {
		bulk := operate.Bulk{Action: operate.Discard}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		plan, err := bulk.Plan(t.Context(), crowd{count: 510_000, step: step})
		if err != nil || plan.Count != 510_000 || len(plan.Topics) != 3 {
			t.Fatalf("the plan has %d messages, %v", plan.Count, err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if after.HeapAlloc > before.HeapAlloc+most {
			t.Errorf("a plan of every %d-th id takes %d bytes, want at most %d", step, after.HeapAlloc-before.HeapAlloc, most)
		}
		runtime.KeepAlive(plan)
	}
}
