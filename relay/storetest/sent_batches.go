package storetest

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// journaler returns the store's journal methods, or skips the test if the store has none.
func (w *worker) journaler() storage.Journaler {
	w.Helper()
	journaler, able := w.store.(storage.Journaler)
	if !able {
		w.Skip("the store keeps no journals")
	}
	return journaler
}

func (w *worker) journals() (journals []storage.Journal) {
	w.Helper()
	w.do("read journals", func(ctx context.Context) (err error) {
		journals, err = w.journaler().Journals(ctx)
		return err
	})
	return slices.DeleteFunc(journals, func(j storage.Journal) bool { return len(j.Suspects)+len(j.Batches) == 0 })
}

// All relays can read the sent batches in the journals of all lanes. The next holder of a lane
// receives the lane's sent batches. A release removes them.
func sentBatchesAreKept(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	journaler := a.journaler()
	a.acquire(storage.Lanes, short)
	written := []storage.Journal{
		{Lease: a.lease(3), Batches: []storage.SentBatch{
			{Sink: "s", Batch: "one 'quoted' \"batch\" \\ é", Size: 500, IDs: []int64{1, 1 << 62}, Places: []int{0, 499}, Checks: []uint32{0, 1<<32 - 1}},
			{Sink: "other", Batch: "2", Size: 1, IDs: []int64{7}, Places: []int{0}, Checks: []uint32{77}},
		}},
		{Lease: a.lease(5), Suspects: []storage.Suspect{{ID: 9}}, Batches: []storage.SentBatch{{Sink: "s", Batch: "1", Size: 2, IDs: []int64{8}, Places: []int{1}, Checks: []uint32{88}}}},
	}
	several := func() {
		a.do("write journals", func(ctx context.Context) error {
			_, err := journaler.WriteJournal(ctx, a.name, append(written, storage.Journal{Lease: a.lease(6), Batches: written[1].Batches}))
			return err
		})
	}
	several()
	a.release(storage.Renewal{Lease: a.lease(6)})
	got := b.journals()
	slices.SortFunc(got, func(x, y storage.Journal) int { return x.Lane - y.Lane })
	if !reflect.DeepEqual(got, written) {
		t.Errorf("wrote the journals\n%+v\nand read\n%+v", written, got)
	}
	for _, grant := range b.takeOver(storage.Lanes, long) {
		at := slices.IndexFunc(written, func(j storage.Journal) bool { return j.Lane == grant.Lane })
		if at < 0 && len(grant.Batches) > 0 || at >= 0 && !reflect.DeepEqual(grant.Batches, written[at].Batches) {
			t.Errorf("lane %d was granted with the batches %+v", grant.Lane, grant.Batches)
		}
	}
}

// Pick finds pending, retrying and scheduled rows of all lanes, with all columns. It doesn't find
// parked or delivered rows.
func picksWaitingRows(t testing.TB, table Table) {
	a, b := holder(t, table, "a"), hire(t, table, "b")
	journaler := b.journaler()
	found := a.oneOfEach(table)
	var wanted []storage.RowID
	want := map[int64]storage.State{}
	for state, id := range found {
		wanted = append(wanted, storage.RowID{Lane: a.info(id).Lane, ID: id})
		if state != storage.StateError && state != storage.StateDone {
			want[id] = state
		}
	}
	wanted = append(wanted, storage.RowID{Lane: 1, ID: 1 << 60})
	var rows []storage.Row
	b.do("pick", func(ctx context.Context) (err error) {
		rows, err = journaler.Pick(ctx, wanted)
		return err
	})
	for _, row := range rows {
		state, wanted := want[row.ID]
		info := a.info(row.ID)
		if !wanted || row.Deferred == (state == storage.StatePending) || row.Retrying != (state == storage.StateRetry) ||
			!reflect.DeepEqual(row.Message, info.Message) || row.Lane != info.Lane {
			t.Errorf("picked a row of state %q: %+v; its message is %+v", state, row, info.Message)
		}
		delete(want, row.ID)
	}
	if len(want) > 0 {
		t.Errorf("rows %v were not picked", want)
	}
}
