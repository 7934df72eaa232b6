package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// allLanes returns a position at the start of each lane.
func allLanes() []storage.Position {
	positions := make([]storage.Position, storage.Lanes)
	for i := range positions {
		positions[i].Lane = i
	}
	return positions
}

func mustRead(t *testing.T, store *memstore.Store) storage.Page {
	t.Helper()
	page, err := store.Read(t.Context(), storage.ReadRequest{Positions: allLanes(), Limit: 1000, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return page
}

func ids(rows []storage.Row) []int64 {
	var found []int64
	for _, row := range rows {
		found = append(found, row.ID)
	}
	slices.Sort(found)
	return found
}

func acquireAll(t *testing.T, store *memstore.Store, name string) map[int]int64 {
	t.Helper()
	grants, err := store.Acquire(t.Context(), name, storage.Lanes, time.Minute)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	fences := map[int]int64{}
	for _, grant := range grants {
		fences[grant.Lane] = grant.Fence
	}
	return fences
}

func TestReadReportsOpenTransactions(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	store := db.Store()
	early, gap := db.Begin(), db.Begin()
	early.Insert(outbox.Message{Topic: "t"}) // id 1
	gap.Insert(outbox.Message{Topic: "t"})   // id 2
	db.Write(outbox.Message{Topic: "t"})     // id 3
	gap.Rollback()

	page := mustRead(t, store)
	if got := ids(page.Rows); !slices.Equal(got, []int64{3}) || page.SafeID != 0 || page.LateAfter != 2 {
		t.Fatalf("with 1 open: rows %v, safe id %d, late after %d", got, page.SafeID, page.LateAfter)
	}
	if page = mustRead(t, store); page.LateAfter != -1 {
		t.Errorf("nothing has appeared, but late after %d", page.LateAfter)
	}
	early.Commit()
	page = mustRead(t, store)
	if got := ids(page.Rows); !slices.Equal(got, []int64{1, 3}) || page.SafeID != 3 || page.LateAfter != 0 {
		t.Errorf("with 1 committed: rows %v, safe id %d, late after %d", got, page.SafeID, page.LateAfter)
	}
	if page = mustRead(t, db.Store()); page.LateAfter != 0 {
		t.Errorf("another reader, who has seen nothing: late after %d", page.LateAfter)
	}
}

func TestLostReadUsesUpNoReport(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	store := db.Store()
	db.Write(outbox.Message{Topic: "t"})
	store.Hooks.Lose = func(context.Context, memstore.Op) error { return errors.New("lost") }
	if _, err := store.Read(t.Context(), storage.ReadRequest{Positions: allLanes(), Limit: 10, MaxBytes: 10}); err == nil {
		t.Fatal("the answer was not lost")
	}
	store.Hooks.Lose = nil
	if page := mustRead(t, store); page.LateAfter != 0 {
		t.Errorf("late after %d, want 0", page.LateAfter)
	}
}

func TestReadReturnsTheSnapshotThatItTook(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	store, other := db.Store(), db.Store()
	fences := acquireAll(t, other, "other")
	id := db.Write(outbox.Message{Topic: "t"})[0]
	store.Hooks.Lose = func(ctx context.Context, op memstore.Op) error {
		_, err := other.Settle(ctx, "other", false, []storage.Settlement{{ID: id, Lane: int(id), MessageID: message(id), Fence: fences[int(id)], State: storage.StateDone}})
		return err
	}
	if got := ids(mustRead(t, store).Rows); !slices.Equal(got, []int64{id}) {
		t.Errorf("read %v, want the row that was settled meanwhile", got)
	}
	store.Hooks.Lose = nil
	if got := ids(mustRead(t, store).Rows); got != nil {
		t.Errorf("read %v after the settle", got)
	}
}

func TestTakeoverSkipsALockedLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		slow, other := db.Store(), db.Store()
		fences := acquireAll(t, slow, "slow")
		id := db.Write(outbox.Message{Topic: "t"})[0]
		slow.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpSettleLocked {
				time.Sleep(time.Hour)
				if got := acquireAll(t, other, "other"); len(got) != storage.Lanes-1 || got[int(id)] != 0 {
					t.Errorf("took over %d lanes, the locked one with fence %d", len(got), got[int(id)])
				}
			}
			return nil
		}
		settled, err := slow.Settle(t.Context(), "slow", true, []storage.Settlement{{ID: id, Lane: int(id), MessageID: message(id), Fence: fences[int(id)], State: storage.StateDone}})
		if err != nil || settled.Changed != 1 {
			t.Fatalf("settle: %+v, %v", settled, err)
		}
		if got := acquireAll(t, other, "other"); got[int(id)] <= fences[int(id)] {
			t.Errorf("the lane's fence is %d after the takeover", got[int(id)])
		}
		checkHistory(t, db.History(), id, fences[int(id)])
	})
}

// checkHistory requires one settlement of the row, with its relay and fence.
func checkHistory(t *testing.T, history []memstore.Change, id, fence int64) {
	t.Helper()
	var settles []memstore.Change
	for _, change := range history {
		if change.Op == memstore.OpSettle && change.ID == id {
			settles = append(settles, change)
		}
	}
	if len(settles) != 1 || settles[0].Relay != "slow" || settles[0].Fence != fence || settles[0].Refused || settles[0].To != storage.StateDone {
		t.Errorf("history of the row: %+v", settles)
	}
}

func TestHooksFailBeforeAndAfter(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tests := map[string]struct {
		hooks   memstore.Hooks
		carried bool
	}{
		"before": {memstore.Hooks{Fail: func(context.Context, memstore.Op) error { return broken }}, false},
		"after":  {memstore.Hooks{Lose: func(context.Context, memstore.Op) error { return broken }}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := memstore.New()
			store := db.Store()
			store.Hooks = test.hooks
			if _, err := store.Acquire(t.Context(), "a", 1, time.Minute); !errors.Is(err, broken) {
				t.Fatalf("acquire: %v", err)
			}
			if carried := len(db.History()) == 1; carried != test.carried {
				t.Errorf("carried out: %t, want %t", carried, test.carried)
			}
		})
	}
}

func TestKeysSpreadOverAllLanes(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	for i := range 6400 {
		db.Write(outbox.Message{Topic: "t", Key: "customer-" + time.Duration(i).String()})
	}
	lanes := make([]int, storage.Lanes)
	for _, change := range db.History() {
		lanes[change.Lane]++
	}
	if slices.Min(lanes) < 50 || slices.Max(lanes) > 150 {
		t.Errorf("6,400 keys over 64 lanes: %v", lanes)
	}
}

// message returns the id that the table assigns to a message without an ID.
func message(number int64) string { return fmt.Sprintf("00000000-0000-7000-8000-%012x", number) }

// If the id sequence is reset while a transaction is open, the transaction's later rows have lower
// ids.
func TestIDSequenceResetDuringATransaction(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	db.Write(outbox.Message{Topic: "t"}, outbox.Message{Topic: "t"})
	s := db.Store()
	pageOf := func() storage.Page {
		page, err := s.Read(t.Context(), storage.ReadRequest{Limit: 0, MaxBytes: 0})
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	pageOf()
	tx := db.Begin()
	tx.Insert(outbox.Message{Topic: "t", Key: "a"})
	db.Renumber(1)
	low := tx.Insert(outbox.Message{Topic: "t", Key: "b"})
	db.Write(outbox.Message{Topic: "t", Key: "c"})
	if page := pageOf(); page.SafeID >= low {
		t.Errorf("nothing appears at or below %d, and %d isn't committed", page.SafeID, low)
	}
	tx.Commit()
	if page := pageOf(); page.LateAfter < 0 || page.LateAfter >= low {
		t.Errorf("rows appeared above %d, and one of them is %d", page.LateAfter, low)
	}
}
