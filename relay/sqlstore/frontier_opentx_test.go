package sqlstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
)

// dim simulates the part of a database on which [openTx] depends: a transaction assigns an id, gets a
// number some time later, is listed as open some time after that, assigns more ids, and ends. A relay
// sees only the numbers and the visible rows.
type dim struct {
	random     *rand.Rand
	now        time.Time
	nextNumber uint64
	nextID     int64
	writers    []*dimWriter
	visible    map[int64]bool
}

// dimWriter is an open transaction.
type dimWriter struct {
	number uint64 // 0: not assigned yet
	listed bool
	ending bool // its rows are visible, but it is still listed
	ids    []int64
	late   map[*dimFollower]int // for each follower, the number of lists in which the transaction was missing since its first id
}

func newDim(seed uint64) *dim {
	return &dim{random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0), visible: map[int64]bool{}}
}

// step begins a transaction, or changes one: it is registered or listed, ends, or assigns an id.
func (d *dim) step() {
	if len(d.writers) < 10 && d.random.IntN(3) == 0 || len(d.writers) == 0 {
		d.writers = append(d.writers, &dimWriter{late: map[*dimFollower]int{}})
		return
	}
	w := d.writers[d.random.IntN(len(d.writers))]
	switch d.random.IntN(5) {
	case 0:
		d.register(w)
	case 1:
		w.listed = w.number != 0
	case 2:
		d.end(w)
	default:
		if w.ending {
			return
		}
		d.nextID++
		if d.random.IntN(8) > 0 { // otherwise the id is lost
			w.ids = append(w.ids, d.nextID)
		}
	}
}

func (d *dim) register(w *dimWriter) {
	if w.number == 0 {
		d.nextNumber++
		w.number = d.nextNumber
	}
}

// end commits or rolls back the transaction. A transaction with ids can end only after it was listed,
// because its first insert returns only then.
func (d *dim) end(w *dimWriter) {
	if len(w.ids) > 0 && !w.listed {
		return
	}
	if w.ending || d.random.IntN(5) > 0 {
		for _, id := range w.ids {
			d.visible[id] = true
		}
		if w.ending = !w.ending; w.ending {
			return
		}
	}
	d.writers = slices.DeleteFunc(d.writers, func(other *dimWriter) bool { return other == w })
}

// dimFollower is a relay.
type dimFollower struct {
	frontier *openTx
	plan     []func(*dim) error // the next steps
	rows     map[int64]bool     // the visible rows of the current read

	seen    map[int64]bool
	highest int64
	safeID  int64

	grace      int // the maximum number of its lists in which a writer with an id may be missing
	id         int64
	number     uint64
	old        []uint64 // the open transactions of the last list
	afterwards *list
	narrow     int // the number of pages whose LateAfter was above the safe id of the previous page
}

// step runs the next step of a read or a list. The database's steps can run between any two of them.
func (f *dimFollower) step(d *dim) error {
	if len(f.plan) == 0 {
		f.afterwards = nil
		d.now = d.now.Add(time.Duration(d.random.IntN(400)) * time.Millisecond)
		f.plan = []func(*dim) error{f.begins, f.shows, f.page}
		switch {
		case f.frontier.due(d.now) && d.random.IntN(2) == 0:
			f.plan = []func(*dim) error{f.begin, f.takeNumber, f.end}
		case d.random.IntN(2) == 0:
			f.plan = []func(*dim) error{f.begins, f.shows, f.begin, f.takeNumber, f.endAfterwards, f.page}
		}
	}
	next := f.plan[0]
	f.plan = f.plan[1:]
	return next(d)
}

func (f *dimFollower) begin(d *dim) error {
	f.hurry(d)
	f.id = f.frontier.begin(d.now)
	return nil
}

func (f *dimFollower) takeNumber(d *dim) error {
	d.nextNumber++
	f.number = d.nextNumber
	return nil
}

func (f *dimFollower) end(d *dim) error {
	f.frontier.end(f.id, f.list(d), d.now)
	return nil
}

func (f *dimFollower) endAfterwards(d *dim) error {
	before := f.frontier.latest
	_ = f.end(d)
	if f.frontier.latest != before {
		f.afterwards = f.frontier.latest
	}
	return nil
}

func (f *dimFollower) begins(d *dim) error {
	f.frontier.begins(d.now)
	return nil
}

func (f *dimFollower) shows(d *dim) error {
	f.rows = maps.Clone(d.visible)
	return nil
}

// hurry registers and lists the transactions that have an id and were missing in more than f.grace lists.
func (f *dimFollower) hurry(d *dim) {
	if d.now.Sub(f.frontier.noted) < listEvery {
		return // lists in quick succession count as one
	}
	for _, w := range d.writers {
		if len(w.ids) == 0 || w.listed {
			continue
		}
		if w.late[f]++; w.late[f] > f.grace {
			d.register(w)
			w.listed = true
		}
	}
}

// list returns a list of open transactions as databases do. Sometimes it is an old list without the list's
// own number, and sometimes it has only the lowest transaction. Transactions without ids may be missing.
func (f *dimFollower) list(d *dim) backend.OpenList {
	if d.random.IntN(4) == 0 {
		return backend.OpenList{Server: "s", Open: f.old}
	}
	f.old = nil
	var ending []uint64
	for _, w := range d.writers {
		switch {
		case w.listed && w.ending:
			ending = append(ending, w.number)
		case w.listed && (len(w.ids) > 0 || d.random.IntN(2) == 0):
			f.old = append(f.old, w.number)
		}
	}
	if len(f.old) > 0 && d.random.IntN(3) == 0 {
		return backend.OpenList{Server: "s", Number: f.number, Open: []uint64{slices.Min(f.old)}}
	}
	return backend.OpenList{Server: "s", Number: f.number, Open: slices.Clone(f.old), Ending: ending, All: true}
}

// page ends a read, and checks its new rows against the previous safe id and the LateAfter of the page.
func (f *dimFollower) page(d *dim) error {
	late, safeID := f.frontier.page("s", f.afterwards)
	for id := range f.rows {
		switch {
		case f.seen[id]:
		case id <= f.safeID:
			return fmt.Errorf("row %d appeared at or below the safe id %d", id, f.safeID)
		case id <= f.highest && (late < 0 || id <= late):
			return fmt.Errorf("row %d appeared below row %d, but LateAfter is %d", id, f.highest, late)
		}
	}
	for id := range f.rows {
		f.seen[id] = true
		f.highest = max(f.highest, id)
		f.frontier.learn(id)
	}
	if late > f.safeID {
		f.narrow++
	}
	if safeID < f.safeID {
		return fmt.Errorf("the safe id decreased from %d to %d", f.safeID, safeID)
	}
	f.safeID = safeID
	return nil
}

func observeDim(seed uint64, steps, writersGrace int) (passed int64, narrow int, err error) {
	d := newDim(seed)
	var followers []*dimFollower
	for range 2 {
		followers = append(followers, &dimFollower{frontier: newOpenTx(0, d.now), seen: map[int64]bool{}, grace: writersGrace})
	}
	for range steps {
		if d.random.IntN(2) == 0 {
			d.step()
			continue
		}
		if err := followers[d.random.IntN(2)].step(d); err != nil {
			return 0, 0, err
		}
	}
	return followers[0].safeID, followers[0].narrow, nil
}

func TestOpenTxGuaranteesHoldInSimulation(t *testing.T) {
	t.Parallel()
	var passed int64
	var narrow int
	for seed := range uint64(600) {
		safeID, less, err := observeDim(seed, 2000, grace)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		passed += safeID
		narrow += less
	}
	if passed < 600*20 || narrow < 600 {
		t.Errorf("the safe ids passed %d ids in all, and %d pages had a LateAfter above the safe id: too few for a meaningful test", passed, narrow)
	}
}

// The simulation includes the worst case: if a writer may be missing in grace + 1 lists, the safe id passes
// its row in some run.
func TestSimulationFindsWritersSlowerThanTheGrace(t *testing.T) {
	t.Parallel()
	for seed := range uint64(600) {
		if _, _, err := observeDim(seed, 2000, grace+1); err != nil {
			return
		}
	}
	t.Error("the safe id never passed a writer that is slower than the grace: the simulation can't find this mistake")
}
