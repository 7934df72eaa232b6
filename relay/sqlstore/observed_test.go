package sqlstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// dim is a database as far as [observed] depends on it: a transaction takes an
// id, gets a number some time later, is seen to be open some time after that,
// takes more ids, and ends. Whoever looks sees numbers, and visible rows.
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
	number uint64 // 0: none yet
	listed bool
	ids    []int64
	late   map[*dimFollower]int // how many observations it may still hide from
}

func newDim(seed uint64) *dim {
	return &dim{random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0), visible: map[int64]bool{}}
}

// step does something that a database does.
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
		d.nextID++
		if d.random.IntN(8) > 0 { // else the id is lost
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

// end commits or rolls back, if the transaction is listed: one that isn't is in
// the middle of its first insert.
func (d *dim) end(w *dimWriter) {
	if len(w.ids) > 0 && !w.listed {
		return
	}
	if d.random.IntN(5) > 0 {
		for _, id := range w.ids {
			d.visible[id] = true
		}
	}
	d.writers = slices.DeleteFunc(d.writers, func(other *dimWriter) bool { return other == w })
}

// dimFollower is a relay.
type dimFollower struct {
	observed *observed
	seen     map[int64]bool
	highest  int64
	final    int64
	grace    int   // that the writers keep to
	id       int64 // of the observation under way
	number   uint64
	stage    int
	run      []uint64 // of earlier lists, the last one
}

// step carries out the next part of an observation, or reads.
func (f *dimFollower) step(d *dim) error {
	if d.random.IntN(3) == 0 {
		return f.read(d)
	}
	switch f.stage++; f.stage {
	case 1:
		d.now = d.now.Add(time.Duration(d.random.IntN(400)) * time.Millisecond)
		if !f.observed.due(d.now) {
			f.stage = 0
			return nil
		}
		f.hurry(d)
		f.id = f.observed.begin(d.now)
	case 2:
		d.nextNumber++
		f.number = d.nextNumber
	default:
		f.stage = 0
		f.observed.end(f.id, f.list(d), d.now)
	}
	return nil
}

// hurry makes those register in time that took an id so many observations ago.
func (f *dimFollower) hurry(d *dim) {
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

// list shows who is open, in one of the ways that there are: sometimes it is an
// old list, which hasn't our number; sometimes there is only the lowest.
func (f *dimFollower) list(d *dim) observation {
	if d.random.IntN(4) == 0 {
		return observation{server: "s", open: f.run}
	}
	f.run = nil
	for _, w := range d.writers {
		if w.listed {
			f.run = append(f.run, w.number)
		}
	}
	if len(f.run) > 0 && d.random.IntN(3) == 0 {
		return observation{server: "s", number: f.number, open: []uint64{slices.Min(f.run)}}
	}
	return observation{server: "s", number: f.number, open: f.run}
}

// read reads what is visible, up to some id, and checks what was promised.
func (f *dimFollower) read(d *dim) error {
	late, final := f.observed.page("s", d.now)
	for id := range d.visible {
		switch {
		case f.seen[id]:
		case id <= f.final:
			return fmt.Errorf("row %d appeared at or below the horizon %d", id, f.final)
		case id <= f.highest && (late < 0 || id <= late):
			return fmt.Errorf("row %d appeared below %d, and late after is %d", id, f.highest, late)
		}
		f.seen[id] = true
	}
	for id := range d.visible {
		f.highest = max(f.highest, id)
		f.observed.learn(id)
	}
	if final < f.final {
		return fmt.Errorf("the horizon went back from %d to %d", f.final, final)
	}
	f.final = final
	return nil
}

func observeDim(seed uint64, steps, writersGrace int) (passed int64, err error) {
	d := newDim(seed)
	var followers []*dimFollower
	for range 2 {
		followers = append(followers, &dimFollower{observed: newObserved(0, d.now), seen: map[int64]bool{}, grace: writersGrace})
	}
	for range steps {
		if d.random.IntN(2) == 0 {
			d.step()
			continue
		}
		if err := followers[d.random.IntN(2)].step(d); err != nil {
			return 0, err
		}
	}
	return followers[0].final, nil
}

func TestObservedKeepsItsPromises(t *testing.T) {
	t.Parallel()
	var passed int64
	for seed := range uint64(2000) {
		final, err := observeDim(seed, 1500, grace)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		passed += final
	}
	if passed < 2000*20 {
		t.Errorf("the horizons passed %d ids in all: they hardly move", passed)
	}
}

// The world above is hostile enough: who takes longer than the grace is passed.
func TestObservedNeedsItsGrace(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		if _, err := observeDim(seed, 1500, grace+1); err != nil {
			return
		}
	}
	t.Error("a writer that takes longer than the grace was never passed: the test can't find what it looks for")
}
