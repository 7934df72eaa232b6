package relay

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// joinerStep is one event, and the settlements that may be written after it. The event "a1 done" is the outcome of sink a for
// row 1, and "a1 retry" another outcome. "a1 lend" lends the row to the transaction of a's handler, which ends with "a1
// commit" or "a1 roll back". "written 1" ends the settlement of row 1 that is in progress. "50ms" lets time pass. The
// settlement of a whole row is "1 done"; the settlement for some of its sinks is "1 a done, left b".
type joinerStep struct{ do, want string }

// TestJoiner checks what is written for rows that several sinks need, and when.
func TestJoiner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows  string // id, key and sinks of each row: "1 k a,b". With "=" before the sinks, the table names them. The key "-" stands for no key
		steps []joinerStep
	}{
		"one sink": {"1 k a", []joinerStep{{"a1 done", "1 done"}}},
		"two sinks deliver": {"1 k a,b", []joinerStep{
			{"a1 done", ""}, {"99ms", ""}, {"b1 done", "1 done"}, {"written 1", ""},
		}},
		"three sinks deliver, without a key": {"1 - a,b,c", []joinerStep{
			{"c1 done", ""}, {"a1 done", ""}, {"b1 done", "1 done"}, {"written 1", ""},
		}},
		"one of three is late": {"1 k a,b,c", []joinerStep{
			{"a1 done", ""}, {"50ms", ""}, {"b1 done", ""}, {"49ms", ""}, {"1ms", "1 a,b done, left c"},
			{"c1 done", ""}, {"written 1", "1 done"},
		}},
		"two of three are late": {"1 k a,b,c", []joinerStep{
			{"a1 done", ""}, {"100ms", "1 a done, left b,c"},
			{"b1 done", ""}, {"written 1", ""}, {"c1 done", "1 done"},
		}},
		"one fails": {"1 k a,b", []joinerStep{
			{"a1 retry", "1 a retry, left b"}, {"b1 done", ""}, {"written 1", "1 done"},
		}},
		"one fails, and others wait for the last": {"1 k a,b,c", []joinerStep{
			{"a1 done", ""}, {"b1 retry", "1 b retry, left a,c"}, {"60ms", ""}, {"written 1", ""}, {"40ms", "1 a done, left c"},
		}},
		"one is parked, and the other delivers later": {"1 k a,b", []joinerStep{
			{"a1 error", "1 a error, left b"}, {"written 1", ""}, {"1h", ""}, {"b1 done", "1 done"},
		}},
		"both fail": {"1 k a,b", []joinerStep{
			{"a1 retry", "1 a retry, left b"}, {"b1 error", ""}, {"written 1", "1 error"},
		}},
		"the last one fails": {"1 k a,b", []joinerStep{{"a1 done", ""}, {"b1 error", "1 b error, left a"}, {"100ms", ""}, {"written 1", "1 done"}}},
		"after a restart two of three sinks remain": {"1 k =b,c", []joinerStep{
			{"b1 done", ""}, {"c1 done", "1 done"},
		}},
		"after a restart two of three sinks remain, and one fails": {"1 k =b,c", []joinerStep{
			{"b1 retry", "1 b retry, left c"}, {"written 1", ""}, {"c1 done", "1 done"},
		}},
		"after a restart one is left":                    {"1 k =b", []joinerStep{{"b1 done", "1 done"}}},
		"no wait for a sink that the relay doesn't have": {"1 k =a,x", []joinerStep{{"a1 done", "1 a done, left x"}}},
		"no wait for a sink without the row in memory": {"1 k a,b", []joinerStep{
			{"drop b1", ""}, {"a1 done", "1 a done, left b"},
		}},
		"no wait for a sink that is down": {"1 k a,b,c", []joinerStep{
			{"down b", ""}, {"a1 done", "1 a done, left b,c"}, {"c1 done", ""}, {"written 1", "1 c done, left b"},
		}},
		"no wait in a lane that is being given up": {"1 k a,b", []joinerStep{
			{"drain", ""}, {"a1 done", "1 a done, left b"},
		}},
		"no wait during a stop": {"1 k a,b", []joinerStep{
			{"a1 done", ""}, {"stop", "1 a done, left b"}, {"written 1", ""}, {"b1 done", "1 done"},
		}},
		"outcomes of a key and sink keep their order": {"1 k a,b; 2 k a; 3 k a,b; 4 l a", []joinerStep{
			{"a1 done", ""}, {"a2 done", ""}, {"a3 retry", ""}, {"a4 done", "4 done"}, {"b1 done", "1 done; 2 done; 3 a retry, left b"},
		}},
		"a settlement in progress doesn't delay the next row": {"1 k a,b; 2 k a,b", []joinerStep{
			{"a1 done", ""}, {"b1 done", "1 done"}, {"a2 done", ""}, {"b2 done", "2 done"},
		}},
		"an outcome behind a row that is being written follows it": {"1 k a,b,c; 2 k b", []joinerStep{
			{"a1 retry", "1 a retry, left b,c"}, {"b1 retry", ""}, {"b2 done", ""}, {"written 1", "1 b retry, left c; 2 done"},
		}},
		"the time behind another outcome counts": {"1 k a,b; 2 k a,b", []joinerStep{
			{"a1 done", ""}, {"50ms", ""}, {"a2 done", ""}, {"50ms", "1 a done, left b"}, {"49ms", ""}, {"1ms", "2 a done, left b"},
		}},
		"the time behind another outcome counts before others of other keys": {"1 k a,b; 2 k a,b; 3 l a,b", []joinerStep{
			{"a1 done", ""}, {"10ms", ""}, {"a2 done", ""}, {"80ms", ""}, {"a3 done", ""},
			{"10ms", "1 a done, left b"}, {"10ms", "2 a done, left b"}, {"80ms", "3 a done, left b"},
		}},
		"the time behind another outcome counts with others of the row": {"1 k a,b; 2 k a,b,c", []joinerStep{
			{"a1 done", ""}, {"10ms", ""}, {"a2 done", ""}, {"70ms", ""}, {"c2 done", ""},
			{"20ms", "1 a done, left b"}, {"10ms", "2 a,c done, left b"},
		}},
		"a row waits a second time, for its third sink": {"1 k a,b,c", []joinerStep{
			{"a1 done", ""}, {"100ms", "1 a done, left b,c"}, {"written 1", ""}, {"50ms", ""}, {"b1 done", ""}, {"100ms", "1 b done, left c"},
		}},
		"a handler's transaction commits": {"1 k a,b", []joinerStep{
			{"a1 lend", "1 a done, left b"}, {"b1 done", ""}, {"200ms", ""}, {"a1 commit", "1 done"},
		}},
		"a handler's transaction commits last": {"1 k a,b", []joinerStep{
			{"b1 done", ""}, {"100ms", "1 b done, left a"}, {"a1 lend", "refused"}, {"written 1", ""}, {"a1 lend", "1 done"}, {"a1 commit", ""},
		}},
		"a handler's transaction doesn't commit": {"1 k a,b", []joinerStep{
			{"a1 lend", "1 a done, left b"}, {"a1 roll back", ""}, {"a1 retry", "1 a retry, left b"}, {"b1 done", ""}, {"written 1", "1 done"},
		}},
		"a handler's transaction doesn't commit, and another sink waits for it": {"1 k a,b", []joinerStep{
			{"a1 lend", "1 a done, left b"}, {"b1 done", ""}, {"40ms", ""}, {"a1 roll back", ""}, {"60ms", "1 b done, left a"},
		}},
		"a handler's transaction ends after the other sink has waited long enough": {"1 k a,b", []joinerStep{
			{"a1 lend", "1 a done, left b"}, {"b1 done", ""}, {"1s", ""}, {"a1 roll back", "1 b done, left a"},
		}},
		"the end of a loan doesn't end another settlement": {"1 k a,b,c", []joinerStep{
			{"b1 retry", "1 b retry, left a,c"}, {"a1 lend", "refused"}, {"a1 roll back", ""}, {"c1 retry", ""}, {"written 1", "1 c retry, left a"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newJoinerWorld()
			for row := range strings.SplitSeq(c.rows, "; ") {
				w.row(row)
			}
			for i, step := range c.steps {
				if got := w.do(step.do); got != step.want || len(w.problems) > 0 {
					t.Fatalf("step %d, %s: %q %v, want %q", i+1, step.do, got, w.problems, step.want)
				}
			}
		})
	}
}

// A key's outcomes are written in order. So the key's state stays in memory while some of its outcomes wait, and is forgotten
// when the last one is written.
func TestKeysOfWaitingOutcomesAreKept(t *testing.T) {
	t.Parallel()
	w := newJoinerWorld()
	e := withLanes(&engine{base: &base{options: Options{Observer: NoObserver{}}}, queues: w.queues, names: w.names}, map[int]*lane{3: w.lane}).engine
	e.settle = newSettler(e.base, w.names, 1, nil, e.written)
	w.row("1 k a,b")
	w.row("2 k a")
	keys := func() (kept []string) {
		for i := range w.lane.readers {
			for name := range w.lane.readers[i].keys {
				kept = append(kept, w.names[i]+" "+name)
			}
		}
		return kept
	}
	for _, step := range []struct{ item, kept string }{{"a1", "[a k b k]"}, {"a2", "[a k b k]"}, {"b1", "[]"}} {
		it := w.items[step.item]
		e.settle.add(it, result{state: storage.StateDone})
		e.resume([]*item{it})
		if ready := e.settle.lists[0].unwritten; step.kept == "[]" {
			if len(ready) != 2 {
				t.Fatalf("%d settlements, want one of each row", len(ready))
			}
			e.written(ready, storage.Settled{Changed: 2})
		} else if len(ready) > 0 {
			t.Fatalf("after %s: %d settlements, want none", step.item, len(ready))
		}
		if kept := fmt.Sprint(keys()); kept != step.kept {
			t.Errorf("after %s: keys %s are in memory, want %s", step.item, kept, step.kept)
		}
	}
}

// A row is in the waiting list once, however many of its sinks have delivered it. The rows that have waited longest are first.
func TestJoinerQueuesARowOnce(t *testing.T) {
	t.Parallel()
	w := newJoinerWorld()
	for id := range 1000 {
		w.row(fmt.Sprint(id+1, " - a,b,c"))
	}
	for _, sink := range []string{"a", "b"} {
		for id := range 1000 {
			w.do(fmt.Sprint(sink, id+1, " done"))
		}
		w.now = w.now.Add(time.Millisecond)
	}
	if len(w.waiting) != 1000 || !slices.IsSortedFunc(w.waiting, func(a, b arrival) int { return a.at.Compare(b.at) }) {
		t.Errorf("%d rows wait, want 1000, the oldest first", len(w.waiting))
	}
}

// TestJointOfARow checks the queues that a row enters, and the state that its items share.
func TestJointOfARow(t *testing.T) {
	t.Parallel()
	message, other := outbox.Message{ID: "m"}, outbox.Message{ID: "other"}
	waits, settled, another := &joint{left: []string{"b"}}, &joint{}, &joint{left: []string{"c"}}
	for name, c := range map[string]struct {
		known  []item // the items in memory with the row's id
		row    storage.Row
		queues []int // the queues that needed it when it was read
		want   []int
		joint  *joint
	}{
		"for the first time":                {row: storage.Row{Message: message}, queues: []int{0, 1}, want: []int{0, 1}, joint: &joint{left: []string{"a", "b"}}},
		"with sinks that are left":          {row: storage.Row{Message: message, Sinks: "b,c"}, queues: []int{1, 2}, want: []int{1, 2}, joint: &joint{sinks: "b,c", left: []string{"b", "c"}}},
		"with one sink that is left":        {row: storage.Row{Message: message, Sinks: "b"}, queues: []int{1}, want: []int{1}},
		"before its time":                   {row: storage.Row{Message: message, Later: true}, queues: []int{0, 1}, want: []int{0}},
		"when its time has come":            {row: storage.Row{Message: message, Later: true, Deferred: true}, queues: []int{0, 1}, want: []int{0, 1}, joint: &joint{left: []string{"a", "b"}}},
		"skipped by an operator":            {row: storage.Row{Message: message, Deferred: true, Holds: storage.WantSkip}, queues: []int{0, 1}, want: []int{0}},
		"while one item represents the row": {known: []item{{slot: 1, row: storage.Row{Message: message}}}, row: storage.Row{Message: message}, queues: []int{0, 1}},
		"while another message has its id": {
			known: []item{{slot: 1, row: storage.Row{Message: other}}}, row: storage.Row{Message: message}, queues: []int{0, 1}, want: []int{0, 1}, joint: &joint{left: []string{"a", "b"}},
		},
		"while a deferred row has its id": {
			known: []item{{slot: 1, row: storage.Row{Message: message, Deferred: true}}}, row: storage.Row{Message: message}, queues: []int{0, 1}, want: []int{0, 1}, joint: &joint{left: []string{"a", "b"}},
		},
		"again, as before a settlement": {
			known: []item{{slot: 0, row: storage.Row{Message: message}, joint: waits}}, row: storage.Row{Message: message}, queues: []int{0, 1}, want: []int{1}, joint: waits,
		},
		"as a retry of one sink, while others wait": {
			known: []item{{slot: 1, row: storage.Row{Message: message, Deferred: true}, joint: waits}}, row: storage.Row{Message: message, Deferred: true, Sinks: "a"}, queues: []int{0}, want: []int{0},
		},
		"again, with one sink": {
			known: []item{{slot: 0, row: storage.Row{Message: message}, joint: waits}}, row: storage.Row{Message: message, Sinks: "b"}, queues: []int{1}, want: []int{1}, joint: waits,
		},
		"again, although all is settled": {
			known: []item{{slot: 0, row: storage.Row{Message: message}, joint: settled}}, row: storage.Row{Message: message}, queues: []int{0, 1}, want: []int{}, joint: settled,
		},
		"again, while another row of several sinks has its id": {
			known: []item{{slot: 0, row: storage.Row{Message: message}, joint: waits}, {slot: 2, row: storage.Row{Message: other, Deferred: true}, joint: another}},
			row:   storage.Row{Message: message}, queues: []int{0, 1}, want: []int{1}, joint: waits,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newJoinerWorld()
			for i := range c.known {
				w.lane.add(&c.known[i])
			}
			f, queues := w.jointOf(w.lane, &c.row, c.queues)
			if f != nil && len(f.ready) == 0 {
				f.ready = nil // jointOf may allocate it with any capacity
			}
			if !slices.Equal(queues, c.want) || !reflect.DeepEqual(f, c.joint) {
				t.Errorf("queues %v with %+v, want %v with %+v", queues, f, c.want, c.joint)
			}
		})
	}
}

// joinerWorld is a joiner for the sinks a, b and c, a lane, and what the table has about the lane's rows.
type joinerWorld struct {
	joiner
	lane   *lane
	queues []*sinkQueue
	now    time.Time
	mutant joinerMutant

	items    map[string]*item // by sink and id, as in "a1"
	sinks    map[int64]string // by row: the sinks that the table names for it; "(none)" if the row was deleted
	left     map[int64]string // by row: the sinks whose outcomes aren't written
	keys     map[*item]keyRef
	under    map[int64]*item     // by row: the item whose settlement is in progress
	at       map[*item]time.Time // by item: when its outcome arrived
	came     map[keyRef][]int64  // the ids whose outcomes arrived, in order
	followed map[keyRef][]int64  // the ids whose outcomes were returned, in order
	times    map[*item]int       // by item: how often its outcome was returned
	problems []string
}

// joinerMutant breaks one rule of the joiner.
type joinerMutant struct {
	start    func(*joiner)
	outcome  func(*item)  // before an item's outcome is added
	lend     func(*joint) // before a row is lent
	returned func(*joint) // when a settlement of a row was returned
	written  func(*joint) // before a settlement of a row ends
	keeps    bool         // the joiner isn't told that a transaction was rolled back
}

func newJoinerWorld() *joinerWorld {
	w := &joinerWorld{
		joiner: newJoiner([]string{"a", "b", "c", unroutedName}), lane: emptyLane(storage.Lease{Lane: 3}, 4), now: time.Unix(1e9, 0),
		items: map[string]*item{}, sinks: map[int64]string{}, left: map[int64]string{}, keys: map[*item]keyRef{}, at: map[*item]time.Time{}, under: map[int64]*item{}, came: map[keyRef][]int64{}, followed: map[keyRef][]int64{}, times: map[*item]int{},
	}
	for i, name := range w.names {
		w.queues = append(w.queues, &sinkQueue{name: name, index: i, breaker: breaker{state: breakerClosed}})
	}
	return w
}

// row admits a row, which is described as in the field rows of TestJoiner.
func (w *joinerWorld) row(text string) {
	var id int64
	var key, sinks string
	fmt.Sscan(text, &id, &key, &sinks)
	row := storage.Row{ID: id, Lane: w.lane.Lane, Message: outbox.Message{ID: fmt.Sprint("m", id)}}
	if named, ok := strings.CutPrefix(sinks, "="); ok {
		row.Sinks, sinks = named, named
	}
	var needed []int
	for queue, name := range w.names {
		if slices.Contains(strings.Split(strings.Replace(sinks, "x", unroutedName, 1), ","), name) {
			needed = append(needed, queue)
		}
	}
	f, queues := w.jointOf(w.lane, &row, needed)
	for _, queue := range queues {
		it := &item{row: row, lane: w.lane, slot: queue, queue: w.queues[queue], joint: f, stage: inFlight}
		if key != "-" {
			it.key = w.lane.key(keyRef{queue, key})
			w.keys[it] = it.key.ref
		}
		w.lane.add(it)
		w.items[w.names[queue]+fmt.Sprint(id)] = it
	}
	w.sinks[id], w.left[id] = row.Sinks, sinks
}

// do executes the event of a step, and returns the settlements that may be written after it.
func (w *joinerWorld) do(step string) string {
	what, how, _ := strings.Cut(step, " ")
	if d, err := time.ParseDuration(what); err == nil {
		return w.pass(d)
	}
	it := w.items[what]
	switch {
	case what == "written":
		var id int64
		fmt.Sscan(how, &id)
		return w.end(id)
	case what == "down" || what == "up":
		b := &w.queues[slices.Index(w.names, how)].breaker
		if b.state, b.openings = breakerOpen, 1; what == "up" {
			b.state, b.openings = breakerClosed, 0
		}
	case what == "drop":
		w.items[how].stage = dropped
		(&heldLanes{}).forget(w.items[how])
	case what == "drain":
		w.lane.draining = true
	case what == "stop":
		w.patience = 0
		return w.returned(w.late(w.now))
	case how == "lend":
		it.toWrite = result{state: storage.StateDone}
		if w.mutant.lend != nil && it.joint != nil {
			w.mutant.lend(it.joint)
		}
		if !w.lend(it) {
			return "refused"
		}
		return w.returned([]*item{it})
	case how == "commit":
		return w.end(it.row.ID)
	case how == "roll back":
		if w.under[it.row.ID] == it {
			delete(w.under, it.row.ID)
			w.times[it]--
		}
		if w.mutant.keeps {
			return ""
		}
		return w.returned(w.takeBack(it, w.now))
	default:
		return w.outcome(it, storage.State(how))
	}
	return ""
}

// outcome passes an item's outcome to the joiner.
func (w *joinerWorld) outcome(it *item, state storage.State) string {
	if ref, ok := w.keys[it]; ok {
		w.came[ref] = append(w.came[ref], it.row.ID)
	}
	it.stage, it.toWrite, w.at[it] = inSettle, result{state: state}, w.now
	if w.mutant.outcome != nil {
		w.mutant.outcome(it)
	}
	if !w.joins(it) {
		return w.returned([]*item{it})
	}
	return w.returned(w.add(it, w.now))
}

// pass lets time pass, and calls the joiner when it is due.
func (w *joinerWorld) pass(d time.Duration) string {
	var settlements []string
	for end := w.now.Add(d); ; {
		due := w.due()
		if due.IsZero() || due.After(end) {
			w.now = end
			return strings.Join(settlements, "; ")
		}
		w.now = laterOf(w.now, due)
		if some := w.returned(w.late(w.now)); some != "" {
			settlements = append(settlements, some)
		}
		if w.due().Equal(due) {
			w.problem("at %v the method due returns the same time again", due)
			w.now = end
			return ""
		}
	}
}

// returned begins settlements, describes them, and checks that they may be written.
func (w *joinerWorld) returned(items []*item) string {
	var settlements []string
	for _, it := range items {
		if w.mutant.returned != nil && it.joint != nil {
			w.mutant.returned(it.joint)
		}
		s := it.settlement()
		if w.under[s.ID] != nil {
			w.problem("row %d: a settlement begins before the last one has ended", s.ID)
		}
		w.under[s.ID] = it
		if s.Sinks != w.sinks[s.ID] {
			w.problem("row %d: the settlement expects the sinks %q, the row has %q", s.ID, s.Sinks, w.sinks[s.ID])
		}
		var of []string
		for _, with := range it.together() {
			of = append(of, w.names[with.slot])
		}
		if all := storage.JoinSinks(slices.Sorted(slices.Values(slices.Concat(of, storage.SplitSinks(s.Left))))); all != w.left[s.ID] || s.For != "" && s.For != storage.JoinSinks(of) {
			w.problem("row %d: %s are settled or left, want %s", s.ID, all, w.left[s.ID])
		}
		for _, with := range it.together() {
			w.follows(with)
		}
		text := fmt.Sprint(s.ID, " ", s.State)
		if s.For != "" {
			text = fmt.Sprintf("%d %s %s, left %s", s.ID, s.For, s.State, s.Left)
		}
		settlements = append(settlements, text)
	}
	return strings.Join(settlements, "; ")
}

// follows checks that an outcome is written once, and in the order of its key and sink.
func (w *joinerWorld) follows(it *item) {
	if w.times[it]++; w.times[it] > 1 {
		w.problem("the outcome of row %d for sink %s is written twice", it.row.ID, w.names[it.slot])
	}
	ref, ok := w.keys[it]
	if !ok || it.stage != inSettle { // its handler's transaction settles it, so the outcome wasn't passed to the joiner
		return
	}
	w.followed[ref] = append(w.followed[ref], it.row.ID)
	if n := len(w.followed[ref]); w.came[ref][n-1] != it.row.ID {
		w.problem("key %v: outcomes arrived as %v, and are written as %v", ref, w.came[ref], w.followed[ref])
	}
}

// end ends the settlement of a row.
func (w *joinerWorld) end(id int64) string {
	it := w.under[id]
	s := it.settlement()
	delete(w.under, id)
	if w.sinks[id], w.left[id] = s.Left, s.Left; s.For == "" {
		w.sinks[id] = "(none)"
	}
	for _, with := range it.together() {
		with.stage = written
	}
	if it.joint == nil {
		return ""
	}
	if w.mutant.written != nil {
		w.mutant.written(it.joint)
	}
	return w.returned(w.written(it, w.now))
}

func (w *joinerWorld) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// TestJoinerInAnyOrder checks the joiner's rules in random histories of outcomes, handlers' transactions and outages.
func TestJoinerInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		if problems := joinerHistory(seed, joinerMutant{}); len(problems) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(problems, "\n"))
		}
	}
}

// TestJoinerMutants shows that the histories of TestJoinerInAnyOrder detect defects: each mutant breaks one rule, and some
// history detects it.
func TestJoinerMutants(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mutant joinerMutant
		want   string // a problem that the mutant causes
	}{
		"the order of a key is ignored": {joinerMutant{outcome: func(it *item) { it.key = nil }}, "are written as"},
		"two concurrent settlements of a row": {joinerMutant{outcome: func(it *item) {
			if it.joint != nil {
				it.joint.writing = nil
			}
		}}, "before the last one has ended"},
		"a row is lent though it is written":     {joinerMutant{lend: func(f *joint) { f.writing = nil }}, "before the last one has ended"},
		"a delivery to one sink is done for all": {joinerMutant{returned: func(f *joint) { f.of, f.rest = "", "" }}, "are settled or left"},
		"a sink that is left isn't named":        {joinerMutant{returned: func(f *joint) { f.rest, _, _ = strings.Cut(f.rest, ",") }}, "are settled or left"},
		"a row keeps the sinks that it had":      {joinerMutant{written: func(f *joint) { f.rest = f.sinks }}, "the settlement expects"},
		"an outcome is taken for another's":      {joinerMutant{written: func(f *joint) { f.ready = append(f.ready, f.writing...) }}, "is written twice"},
		"deliveries are lost behind a failure":   {joinerMutant{written: func(f *joint) { f.ready = nil }}, "is never written"},
		"one of the items settled together is":   {joinerMutant{returned: func(f *joint) { f.writing = f.writing[:1] }}, "are settled or left"},
		"a loan isn't taken back":                {joinerMutant{keeps: true}, "is never written"},
		"a delivery waits for too long":          {joinerMutant{start: func(j *joiner) { j.patience = time.Second }}, "waits for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(500) {
				if slices.ContainsFunc(joinerHistory(seed, c.mutant), func(problem string) bool { return strings.Contains(problem, c.want) }) {
					return
				}
			}
			t.Error("no history detected this mutant")
		})
	}
}

// joinerHistory passes the outcomes of some rows to the joiner in a random order, and returns the violated rules.
func joinerHistory(seed uint64, mutant joinerMutant) []string {
	random := rand.New(rand.NewPCG(seed, 0))
	w := newJoinerWorld()
	if w.mutant = mutant; mutant.start != nil {
		mutant.start(&w.joiner)
	}
	toSend := map[string][]*item{} // by sink and key, in order
	for id := range int64(3 + random.IntN(20)) {
		var of []string
		for len(of) == 0 {
			of = slices.DeleteFunc(strings.Split("a,b,c", ","), func(string) bool { return random.IntN(3) == 0 })
		}
		named := []string{"", "="}[random.IntN(2)]
		w.row(fmt.Sprint(id+1, " ", []string{"k", "l", "-"}[random.IntN(3)], " ", named, strings.Join(of, ",")))
	}
	for _, it := range sortedItems(w.items) {
		line := fmt.Sprint(it.slot, it.row.ID)
		if it.key != nil {
			line = fmt.Sprint(it.slot, it.key.ref.key)
		}
		toSend[line] = append(toSend[line], it)
	}
	lines := slices.Sorted(maps.Keys(toSend))
	lent := map[string]*item{}
	for step := 0; step < 10_000 && len(w.problems) == 0 && (len(lines) > 0 || len(w.under) > 0 || w.count > 0); step++ {
		switch random.IntN(6) {
		case 0:
			w.do(fmt.Sprint(random.IntN(60), "ms"))
		case 1:
			w.do([]string{"down ", "up ", "up "}[random.IntN(3)] + w.names[random.IntN(3)])
		case 2, 3:
			for _, id := range slices.Sorted(maps.Keys(w.under)) {
				if it := w.under[id]; it.stage == inSettle && random.IntN(2) == 0 {
					w.do(fmt.Sprint("written ", id))
					break
				}
			}
		default:
			if len(lines) == 0 {
				break
			}
			line := lines[random.IntN(len(lines))]
			it, done := toSend[line][0], true
			what := w.names[it.slot] + fmt.Sprint(it.row.ID)
			switch {
			case lent[line] != nil && random.IntN(2) == 0:
				delete(lent, line)
				w.do(what + " commit")
			case lent[line] != nil:
				delete(lent, line)
				w.do(what + " roll back")
				w.do(what + " retry")
			case it.slot == 0 && it.joint != nil && random.IntN(2) == 0:
				if done = false; w.do(what+" lend") != "refused" {
					lent[line] = it
				}
			default:
				w.do(what + " " + []string{"done", "done", "done", "retry", "error"}[random.IntN(5)])
			}
			if done {
				if toSend[line] = toSend[line][1:]; len(toSend[line]) == 0 {
					lines = slices.Delete(lines, slices.Index(lines, line), slices.Index(lines, line)+1)
				}
			}
		}
		w.check()
	}
	for _, it := range sortedItems(w.items) {
		if w.times[it] == 0 && len(w.problems) == 0 {
			w.problem("the outcome of row %d for sink %s is never written", it.row.ID, w.names[it.slot])
		}
	}
	waiting := 0
	for _, it := range w.items {
		if it.key != nil {
			waiting = max(waiting, len(it.key.outcomes))
		}
	}
	if len(w.problems) == 0 && (w.count != 0 || waiting > 0) {
		w.problem("in the end %d outcomes wait, %d of one key", w.count, waiting)
	}
	return w.problems
}

// check checks that no outcome waits for longer than joinPatience.
func (w *joinerWorld) check() {
	for _, it := range w.items {
		if f := it.joint; f != nil && len(f.writing) == 0 && slices.Contains(f.ready, it) && w.now.Sub(w.at[it]) >= joinPatience {
			w.problem("the outcome of row %d for sink %s waits for %v", it.row.ID, w.names[it.slot], w.now.Sub(w.at[it]))
		}
	}
}

// sortedItems returns the items, those of rows with lower ids first.
func sortedItems(items map[string]*item) []*item {
	return slices.SortedFunc(maps.Values(items), func(a, b *item) int { return cmp.Or(cmp.Compare(a.row.ID, b.row.ID), a.slot-b.slot) })
}
