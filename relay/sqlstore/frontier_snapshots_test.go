package sqlstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func TestParseSnapshot(t *testing.T) {
	t.Parallel()
	got, err := parseSnapshot("10:20:10,14,19")
	if err != nil || got.xmin != 10 || got.xmax != 20 || !slices.Equal(got.open, []uint64{10, 14, 19}) {
		t.Errorf("parseSnapshot returned %+v, %v", got, err)
	}
	if got, err := parseSnapshot("18446744073709551615:18446744073709551615:"); err != nil || got.xmin != 1<<64-1 || len(got.open) != 0 {
		t.Errorf("parseSnapshot returned %+v, %v", got, err)
	}
	for _, text := range []string{"", "1:2", "1:2:x", "a:2:", "1:2:3:4", "1:2:,"} {
		if _, err := parseSnapshot(text); err == nil {
			t.Errorf("%q was parsed without an error", text)
		}
	}
}

func TestSnapshotSees(t *testing.T) {
	t.Parallel()
	s := snapshot{xmin: 10, xmax: 15, open: []uint64{10, 12}}
	for xid, want := range map[uint64]bool{1: true, 9: true, 10: false, 11: true, 12: false, 13: true, 14: true, 15: false, 99: false} {
		if s.sees(xid) != want {
			t.Errorf("sees(%d) = %t", xid, !want)
		}
	}
	for xid, want := range map[uint64]bool{1: true, 10: true, 12: true, 14: true, 15: false, 16: false} {
		if s.endedFrom(xid) != want {
			t.Errorf("endedFrom(%d) = %t", xid, !want)
		}
	}
	if (snapshot{xmin: 10, xmax: 13, open: []uint64{10, 11, 12}}).endedFrom(10) {
		t.Error("all transactions from 10 on are open, but endedFrom(10) is true")
	}
}

// T1 has the lower transaction id and row id, and commits last. A safe id that was derived from xmax alone would be above T1's row.
func TestSafeIDStaysBelowAnOpenWriter(t *testing.T) {
	t.Parallel()
	var h snapshots
	promised(&h, "s", snapshot{xmin: 100, xmax: 100}, 0)
	h.wrote(100, h.before())
	// T1 is 101 and writes id 1; T2 is 102, writes id 2 and commits; the store's own write is 103.
	late, final := promised(&h, "s", snapshot{xmin: 101, xmax: 103, open: []uint64{101}}, 2)
	if late != 0 || final != 0 {
		t.Errorf("T2 committed: late after %d, safe id %d; want 0, 0", late, final)
	}
	h.wrote(103, h.before())
	late, final = promised(&h, "s", snapshot{xmin: 101, xmax: 104, open: []uint64{101}}, 2)
	if late != 0 || final != 0 { // 103, the store's own write, has ended
		t.Errorf("T1 is open: late after %d, safe id %d; want 0, 0", late, final)
	}
	// T1 commits.
	late, final = promised(&h, "s", snapshot{xmin: 104, xmax: 104}, 2)
	if late != 0 || final != 2 {
		t.Errorf("T1 committed: late after %d, safe id %d; want 0, 2", late, final)
	}
	if late, final = promised(&h, "s", snapshot{xmin: 104, xmax: 104}, 2); late != -1 || final != 2 {
		t.Errorf("no transaction since: late after %d, safe id %d; want -1, 2", late, final)
	}
}

// The rows of a transaction that stays open long are reported as late once, when it ends.
func TestLongTransactionIsReportedOnce(t *testing.T) {
	t.Parallel()
	var h snapshots
	promised(&h, "s", snapshot{xmin: 50, xmax: 50}, 1000)
	h.wrote(50, h.before())
	low := 0
	for i := range uint64(10_000) { // 51 stays open, others begin and end
		h.wrote(60+2*i, h.before())
		late, final := promised(&h, "s", snapshot{xmin: 51, xmax: 61 + 2*i, open: []uint64{51}}, 1001+int64(i))
		if final != 1000 {
			t.Fatalf("the safe id is %d, want 1000", final)
		}
		if i > 0 && late >= 0 && late < 1000+int64(i)-1 {
			low++
		}
	}
	if low != 0 || len(h.checkpoints) > maxCheckpoints {
		t.Errorf("%d of 10,000 pages have a low LateAfter; there are %d checkpoints", low, len(h.checkpoints))
	}
	if late, final := promised(&h, "s", snapshot{xmin: 30_000, xmax: 30_000}, 12_000); late != 1000 || final < 10_000 {
		t.Errorf("the transaction ended: late after %d, safe id %d; want 1000, and a safe id of at least 10,000", late, final)
	}
}

func TestAnotherServerResetsTheSafeID(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]struct {
		server string
		xmax   uint64
		given  int64
	}{"restarted": {"t", 200, 600}, "xids go back": {"s", 99, 600}, "ids go back": {"s", 200, 499}} {
		var h snapshots
		promised(&h, "s", snapshot{xmin: 100, xmax: 100}, 500)
		h.wrote(100, h.before())
		if late, final := promised(&h, now.server, snapshot{xmin: now.xmax, xmax: now.xmax}, now.given); late != 0 || final != 0 {
			t.Errorf("%s: late after %d, safe id %d; want 0, 0", name, late, final)
		}
	}
}

// world simulates the part of PostgreSQL on which the safe id depends: transactions get an xid, then
// assign row ids, and end in any order.
type world struct {
	random  *rand.Rand
	nextXID uint64
	ended   uint64 // the highest xid that has ended
	nextID  int64
	open    map[uint64][]int64 // ids written by open transactions
	visible map[int64]uint64   // committed rows, with the xid that wrote them
}

func (w *world) begin() uint64 {
	w.nextXID += 1 + uint64(w.random.IntN(2)) // subtransactions and aborted transactions use up some xids
	w.open[w.nextXID] = nil
	return w.nextXID
}

func (w *world) end(xid uint64, commit bool) {
	for _, id := range w.open[xid] {
		if commit {
			w.visible[id] = xid
		}
	}
	delete(w.open, xid)
	w.ended = max(w.ended, xid)
}

func (w *world) snapshot() snapshot {
	s := snapshot{xmax: w.ended + 1}
	for xid := range w.open {
		if xid < s.xmax {
			s.open = append(s.open, xid)
		}
	}
	slices.Sort(s.open)
	s.xmin = s.xmax
	if len(s.open) > 0 {
		s.xmin = s.open[0]
	}
	return s
}

func (w *world) anyOpen() uint64 {
	xids := make([]uint64, 0, len(w.open))
	for xid := range w.open {
		xids = append(xids, xid)
	}
	if len(xids) == 0 {
		return 0
	}
	slices.Sort(xids)
	return xids[w.random.IntN(len(xids))]
}

// follower is a relay that reads and writes. Several of its writes may be open.
type follower struct {
	safeID  snapshots
	seen    map[int64]bool
	highest int64
	final   int64
	writing map[uint64]token
	idle    int // the number of reads that the idle check would have avoided
}

func firstLine(s snapshot, given int64) backend.FirstLine {
	text := fmt.Sprintf("%d:%d:", s.xmin, s.xmax)
	for i, xid := range s.open {
		if i > 0 {
			text += ","
		}
		text += strconv.FormatUint(xid, 10)
	}
	return backend.FirstLine{Told: true, LastID: given, Snapshot: text, Server: "s"}
}

// promised returns the LateAfter and the safe id of a page that was read with this snapshot.
func promised(h *snapshots, server string, s snapshot, given int64) (lateAfter, final int64) {
	line, page := firstLine(s, given), storage.Page{}
	line.Server = server
	if err := h.guarantee(context.Background(), line, token{}, &page); err != nil {
		panic(err)
	}
	return page.LateAfter, page.SafeID
}

// look reads a page, and checks its new rows against the safe ids of earlier pages and its own LateAfter.
func (f *follower) look(w *world) error {
	if f.safeID.idle(firstLine(w.snapshot(), w.nextID)) {
		for id, xid := range w.visible {
			if !f.seen[id] {
				return fmt.Errorf("row %d of transaction %d appeared, but idle returned true", id, xid)
			}
		}
		f.idle++
	}
	late, final := promised(&f.safeID, "s", w.snapshot(), w.nextID)
	for id, xid := range w.visible {
		switch {
		case f.seen[id]:
		case id <= f.final:
			return fmt.Errorf("row %d of transaction %d appeared at or below the safe id %d", id, xid, f.final)
		case id <= f.highest && (late < 0 || id <= late):
			return fmt.Errorf("row %d of transaction %d appeared below row %d, but LateAfter is %d", id, xid, f.highest, late)
		}
		f.seen[id] = true
	}
	for id := range w.visible {
		f.highest = max(f.highest, id)
	}
	f.final = max(f.final, final)
	return nil
}

func (f *follower) step(w *world) error {
	switch w.random.IntN(10) {
	case 0, 1, 2:
		before := f.safeID.before()
		f.writing[w.begin()] = before
	case 3, 4, 5:
		for xid, before := range f.writing { // one of the writes commits
			w.end(xid, true)
			f.safeID.wrote(xid, before)
			delete(f.writing, xid)
			break
		}
	case 6:
		if w.random.IntN(5) == 0 {
			f.safeID.reset()
		}
	default:
		return f.look(w)
	}
	return nil
}

func (w *world) step() {
	switch xid := w.anyOpen(); {
	case w.random.IntN(3) == 0 && len(w.open) < 12:
		w.begin()
	case xid == 0:
	case w.random.IntN(2) == 0:
		w.nextID++
		if w.random.IntN(10) > 0 { // otherwise the id is lost
			w.open[xid] = append(w.open[xid], w.nextID)
		}
	case w.random.IntN(4) > 0:
		w.end(xid, w.random.IntN(5) > 0)
	}
}

// simulate runs the world with two followers. It returns the first violation of a guarantee, and for the
// first follower the final safe id and the number of reads that the idle check would have avoided.
func simulate(seed uint64, steps int) (passed int64, idle int, err error) {
	w := &world{random: rand.New(rand.NewPCG(seed, 0)), nextXID: 100, ended: 100, open: map[uint64][]int64{}, visible: map[int64]uint64{}}
	followers := []*follower{}
	for range 2 {
		followers = append(followers, &follower{seen: map[int64]bool{}, writing: map[uint64]token{}})
	}
	for range steps {
		if f := followers[w.random.IntN(len(followers))]; w.random.IntN(3) == 0 {
			if err := f.step(w); err != nil {
				return 0, 0, err
			}
			continue
		}
		w.step()
	}
	return followers[0].final, followers[0].idle, nil
}

func TestSnapshotGuaranteesHoldInSimulation(t *testing.T) {
	t.Parallel()
	var passed int64
	looksSpared := 0
	for seed := range uint64(2000) {
		final, idle, err := simulate(seed, 600)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		passed += final
		looksSpared += idle
	}
	if passed < 2000*20 || looksSpared < 2000 {
		t.Errorf("the safe ids passed %d ids in all, and idle would have avoided %d reads: too few for a meaningful test", passed, looksSpared)
	}
}
