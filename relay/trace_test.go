package relay_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Traces of simulated histories, for the model in internal/model. The model accepts a trace if each event is an action that
// the model allows, with the same result. The event of a call is at the place in the trace where the call took effect, and
// has the result that the relay received. This result may differ from the effect if the store is broken on purpose
// (mutants_test.go).

var (
	traceFolder = flag.String("traces", "", "write a trace of each simulated history to this folder, for the model")
	traceLong   = flag.Int("trace-long", 100, "of this many traces of TestTraces, one is as long as the histories of TestSimulation")
	traceCount  = flag.Int("trace-histories", 100, "how many traces TestTraces writes")
)

// traceEvent is a line of a trace. Times are in microseconds from the beginning of the history.
type traceEvent struct {
	E     string `json:"e"` // the kind of the event
	T     int64  `json:"t"`
	Call  int    `json:"c,omitempty"`     // the number of the call; the event with its result has the same number
	Began int64  `json:"began,omitempty"` // when the relay made the call
	From  int64  `json:"from,omitempty"`  // on a real database: the call took effect between this time and T
	Relay string `json:"r,omitempty"`
	Lost  bool   `json:"lost,omitempty"` // the relay didn't receive the call's result

	ID      int64  `json:"id,omitempty"`
	Lane    int    `json:"lane,omitempty"`
	Key     string `json:"key,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Due     int64  `json:"due,omitempty"`     // available_at
	Expires int64  `json:"expires,omitempty"` // expires_at
	By      int64  `json:"by,omitempty"`      // when the message expires because of its route

	IDs     []int64  `json:"ids,omitempty"`
	Sink    string   `json:"sink,omitempty"`
	Answers []string `json:"answers,omitempty"`
	Outage  int      `json:"outage,omitempty"`

	TTL    int64             `json:"ttl,omitempty"`
	Now    int64             `json:"now,omitempty"`
	Grants []traceLease      `json:"grants,omitempty"` // for Acquire: the grants, with the stored marks; for Renew and Release: the renewals, with the new marks
	Leases []storage.Lease   `json:"leases,omitempty"` // the leases that were granted or renewed in the table
	Kept   []storage.Lease   `json:"kept,omitempty"`   // the leases that are valid according to the result that the relay received
	Lanes  []int             `json:"lanes,omitempty"`
	Limit  int               `json:"limit,omitempty"`
	Asked  []storage.LaneKey `json:"asked,omitempty"`
	Blocks []traceBlock      `json:"blocks,omitempty"`
	Ranges []traceRange      `json:"ranges,omitempty"`
	Except []string          `json:"except,omitempty"`
	Rows   []traceRow        `json:"rows,omitempty"`
	Page   *tracePage        `json:"page,omitempty"`

	Settled []traceSettled `json:"settled,omitempty"`
	Counts  *[3]int        `json:"counts,omitempty"` // changed, fenced, missing

	Drain  int64 `json:"drain,omitempty"`  // in the first event of a trace of a real database: the drain time-out
	Reuses bool  `json:"reuses,omitempty"` // there, too: the ids of a transaction that rolls back are assigned again
}

// traceRange is a position: lane, after, until and key. The last two may be absent.
type traceRange storage.Position

func (r traceRange) MarshalJSON() ([]byte, error) {
	if r.Until == 0 && r.Key == "" {
		return fmt.Appendf(nil, "[%d,%d]", r.Lane, r.After), nil
	}
	return json.Marshal([]any{r.Lane, r.After, r.Until, r.Key})
}

type traceLease struct {
	storage.Lease
	Main  int64            `json:"main"`
	Sinks map[string]int64 `json:"sinks,omitempty"`
}

type traceBlock struct {
	Lane int    `json:"lane"`
	Key  string `json:"key"`
	ID   int64  `json:"id"`
}

type traceRow struct {
	ID       int64 `json:"id"`
	Later    bool  `json:"later,omitempty"`
	Retrying bool  `json:"retrying,omitempty"`
	Expires  int64 `json:"expires,omitempty"`
	Attempts int   `json:"attempts,omitempty"`
	Wants    int   `json:"wants,omitempty"`
}

type tracePage struct {
	More    bool  `json:"more"`
	Through int64 `json:"through"`
	Late    int64 `json:"late"`
	Safe    int64 `json:"safe"`
	Last    int64 `json:"last"`
}

type traceSettled struct {
	ID       int64  `json:"id"`
	Lane     int    `json:"lane"`
	Fence    int64  `json:"fence"`
	State    string `json:"state"`
	Attempts int    `json:"attempts"`
	Holds    bool   `json:"holds,omitempty"`
	Deferred bool   `json:"deferred,omitempty"`
	Result   string `json:"result"` // the result in the table: changed, fenced or missing
}

// tracer records the events of one history. A nil tracer records nothing.
type tracer struct {
	began       time.Time
	expireAfter time.Duration // of the topic a.2

	mu      sync.Mutex
	events  []*traceEvent
	calls   int
	message outbox.Message // the message that is being inserted
	outages map[string]int
	last    int // the number of the last outage
}

// tracedCall is the key under which a call's context has the call's event.
type tracedCall struct{}

func newTracer() *tracer {
	return &tracer{began: time.Now().Round(0), expireAfter: expireAfter, outages: map[string]int{}} // without the monotonic clock, because databases have none
}

func (t *tracer) since(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.Sub(t.began).Microseconds()
}

func (t *tracer) add(e *traceEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.T = t.since(time.Now())
	t.events = append(t.events, e)
}

// observe records that a call takes effect. The method of tracedStore for the call adds the relay's request and the result
// that it received.
func (t *tracer) observe(ctx context.Context, op memstore.Op, changes []memstore.Change) {
	var ids []int64
	for _, c := range changes {
		ids = append(ids, c.ID)
	}
	switch op {
	case memstore.OpAssign:
		m := &t.message
		e := &traceEvent{E: string(op), ID: ids[0], Lane: changes[0].Lane, Key: m.Key, Topic: m.Topic, Due: t.since(m.AvailableAt), Expires: t.since(m.ExpiresAt)}
		if m.Topic == "a.2" {
			e.By = t.since(changes[0].At.Add(t.expireAfter))
		}
		t.add(e)
	case memstore.OpInsert, memstore.OpRollback, memstore.OpRequeue, memstore.OpSkip, memstore.OpDiscard:
		t.add(&traceEvent{E: string(op), IDs: ids})
	default:
		e, _ := ctx.Value(tracedCall{}).(*traceEvent)
		if e == nil || e.E != "" || op == memstore.OpPick { // a broken store may call Pick within another call
			return
		}
		e.E = string(op)
		for _, c := range changes {
			switch op {
			case memstore.OpAcquire, memstore.OpRenew, memstore.OpRelease:
				e.Leases = append(e.Leases, storage.Lease{Lane: c.Lane, Fence: c.Fence})
			case memstore.OpSettle:
				result := "changed"
				if c.Fenced {
					result = "fenced"
				} else if c.Refused {
					result = "missing"
				}
				e.Settled = append(e.Settled, traceSettled{ID: c.ID, Lane: c.Lane, Fence: c.Fence, State: string(c.To), Attempts: c.Attempts, Result: result})
			}
		}
		t.add(e)
	}
}

// took records that a call of a relay took effect after the given time on a real database.
func (t *tracer) took(ctx context.Context, from time.Time, op memstore.Op, changes []memstore.Change) {
	if e, _ := ctx.Value(tracedCall{}).(*traceEvent); e != nil {
		e.From = t.since(from)
	}
	t.observe(ctx, op, changes)
}

// inserts records the message that the caller is about to insert. The caller holds the world's lock.
func (t *tracer) inserts(m outbox.Message) {
	if t != nil {
		t.message = m
	}
}

func (t *tracer) killed(relay string) {
	if t != nil {
		t.add(&traceEvent{E: "kill", Relay: relay})
	}
}

func (t *tracer) stopped(relay string) {
	if t != nil {
		t.add(&traceEvent{E: "stop", Relay: relay})
	}
}

func (t *tracer) outage(sink string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = t.last%200 + 1
	t.outages[sink] = t.last
}

func (t *tracer) sends(relay, sink string, batch []sinks.Message) {
	if t == nil {
		return
	}
	var ids []int64
	for _, m := range batch {
		ids = append(ids, m.Sequence)
	}
	t.add(&traceEvent{E: "send", Relay: relay, Sink: sink, IDs: ids})
}

func (t *tracer) arrived(relay string, m sinks.Message, o sinks.Outcome, down bool) {
	if t == nil {
		return
	}
	e := &traceEvent{E: "arrive", Relay: relay, ID: m.Sequence, Answers: []string{answerOf(o)}}
	if down {
		t.mu.Lock()
		e.Outage = t.outages[m.Topic[:1]]
		t.mu.Unlock()
	}
	t.add(e)
}

func (t *tracer) answered(relay, sink string, batch []sinks.Message, outcomes []sinks.Outcome) {
	if t == nil {
		return
	}
	e := &traceEvent{E: "answer", Relay: relay, Sink: sink}
	for i, m := range batch {
		e.IDs, e.Answers = append(e.IDs, m.Sequence), append(e.Answers, answerOf(outcomes[i]))
	}
	t.add(e)
}

// answerOf returns the model's name for an answer.
func answerOf(o sinks.Outcome) string {
	switch {
	case o.Result == sinks.Delivered:
		return "delivered"
	case o.Result == sinks.Retry && o.Reason == sinks.ReasonUnknown:
		return "lost"
	case o.Result == sinks.Retry:
		return "failed"
	case o.Result == sinks.Reject:
		return "rejected"
	default:
		return "unsent"
	}
}

func (t *tracer) wrap(relay string, store storage.Store) storage.Store {
	if t == nil {
		return store
	}
	t.add(&traceEvent{E: "start", Relay: relay})
	return tracedStore{store, t, relay}
}

// tracedStore records the calls of one relay. It doesn't implement Journaler, so its relay has no guards: neither quarantine
// nor dedup.
type tracedStore struct {
	storage.Store
	t     *tracer
	relay string
}

// call makes a call. If the call takes effect, call records it and its result.
func (s tracedStore) call(ctx context.Context, work func(context.Context, *traceEvent) error) error {
	e := &traceEvent{Relay: s.relay, Began: s.t.since(time.Now())}
	s.t.mu.Lock()
	s.t.calls++
	e.Call = s.t.calls
	s.t.mu.Unlock()
	err := work(context.WithValue(ctx, tracedCall{}, e), e)
	if e.E == "" {
		return err
	}
	got := &traceEvent{E: "got", Call: e.Call, Relay: s.relay}
	if err != nil {
		got.E, e.Lost = "lost", true
	}
	s.t.add(got)
	return err
}

func (s tracedStore) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (members storage.Members, err error) {
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		members, err = s.Store.Heartbeat(ctx, self, ttl)
		e.Now = s.t.since(members.Now)
		return err
	})
	return members, err
}

func (s tracedStore) FenceRelay(ctx context.Context, name string, claim storage.Claim) error {
	return s.call(ctx, func(ctx context.Context, _ *traceEvent) error { return s.Store.FenceRelay(ctx, name, claim) })
}

func (s tracedStore) Acquire(ctx context.Context, name string, count int, ttl time.Duration) (grants []storage.Grant, err error) {
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		grants, err = s.Store.Acquire(ctx, name, count, ttl)
		e.TTL = ttl.Microseconds()
		for _, g := range grants {
			e.Grants = append(e.Grants, traceLease{g.Lease, g.Marks.Main, g.Marks.Sinks})
		}
		return err
	})
	return grants, err
}

func (s tracedStore) Renew(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) (kept []storage.Lease, err error) {
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		kept, err = s.Store.Renew(ctx, name, renewals, ttl)
		e.TTL, e.Kept, e.Grants = ttl.Microseconds(), kept, leasesOf(renewals)
		return err
	})
	return kept, err
}

func (s tracedStore) Release(ctx context.Context, name string, renewals []storage.Renewal) error {
	return s.call(ctx, func(ctx context.Context, e *traceEvent) error {
		e.Grants = leasesOf(renewals)
		return s.Store.Release(ctx, name, renewals)
	})
}

func leasesOf(renewals []storage.Renewal) (leases []traceLease) {
	for _, r := range renewals {
		leases = append(leases, traceLease{r.Lease, r.Marks.Main, r.Marks.Sinks})
	}
	return leases
}

func (s tracedStore) BlockedKeys(ctx context.Context, lanes []int, limit int) (keys []storage.BlockedKey, err error) {
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		keys, err = s.Store.BlockedKeys(ctx, lanes, limit)
		e.Lanes, e.Limit, e.Blocks = slices.Clone(lanes), limit, blocksOf(keys)
		return err
	})
	return keys, err
}

func (s tracedStore) BlockedAmong(ctx context.Context, asked []storage.LaneKey) (keys []storage.BlockedKey, err error) {
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		keys, err = s.Store.BlockedAmong(ctx, asked)
		e.Asked, e.Blocks = slices.Clone(asked), blocksOf(keys)
		return err
	})
	return keys, err
}

func blocksOf(keys []storage.BlockedKey) (blocks []traceBlock) {
	for _, k := range keys {
		blocks = append(blocks, traceBlock{k.Lane, k.Key, k.ID})
	}
	return blocks
}

func (s tracedStore) Read(ctx context.Context, request storage.ReadRequest) (page storage.Page, err error) {
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		page, err = s.Store.Read(ctx, request)
		e.Limit, e.Except, e.Rows = request.Limit, slices.Clone(request.Except), s.rowsOf(page.Rows)
		for _, p := range request.Positions {
			e.Ranges = append(e.Ranges, traceRange(p))
		}
		e.Page = &tracePage{page.More, page.Through, page.LateAfter, page.SafeID, page.LastID}
		return err
	})
	return page, err
}

func (s tracedStore) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) (rows []storage.Row, left []storage.Position, err error) {
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		rows, left, err = s.Store.Scan(ctx, positions, except, keep)
		e.Rows = s.rowsOf(rows)
		return err
	})
	return rows, left, err
}

func (s tracedStore) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) (rows []storage.Row, next storage.DueCursor, err error) {
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		rows, next, err = s.Store.Due(ctx, lanes, after, limit, maxBytes)
		e.Rows = s.rowsOf(rows)
		return err
	})
	return rows, next, err
}

func (s tracedStore) rowsOf(rows []storage.Row) (traced []traceRow) {
	for _, r := range rows {
		traced = append(traced, traceRow{r.ID, r.Later, r.Retrying, s.t.since(r.Message.ExpiresAt), r.Attempts, int(r.Holds)})
	}
	return traced
}

func (s tracedStore) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (counts storage.Settled, err error) {
	asked := slices.Clone(settlements)
	err = s.call(ctx, func(ctx context.Context, e *traceEvent) (err error) {
		counts, err = s.Store.Settle(ctx, name, keep, settlements)
		results := e.Settled // in the order of the settlements
		e.Settled, e.Counts = nil, &[3]int{counts.Changed, counts.Fenced, counts.Missing}
		for i, want := range asked {
			line := traceSettled{ID: want.ID, Lane: want.Lane, Fence: want.Fence, State: string(want.State), Attempts: want.Attempts, Holds: want.Holds, Deferred: want.Deferred}
			if i < len(results) {
				line.Result = results[i].Result
				if results[i].State != line.State {
					line.Result = "wrote " + results[i].State
				}
			}
			e.Settled = append(e.Settled, line)
		}
		return err
	})
	return counts, err
}

// write writes the trace to a file.
func (t *tracer) write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // Flush reports failed writes
	buffer := bufio.NewWriter(file)
	encoder := json.NewEncoder(buffer)
	for _, e := range t.events {
		if err := encoder.Encode(e); err != nil {
			return err
		}
	}
	return buffer.Flush()
}

// traceOf runs a history and writes its trace.
func traceOf(t *testing.T, path string, seed uint64, wrap func(storage.Store) storage.Store, change func(*world), spoil ...func(*relay.SinkOptions)) (problems []string) {
	return simulateAs(t, seed, wrap, func(w *world) {
		change(w)
		w.tracer = newTracer()
		w.db.Observe = w.tracer.observe
		w.play()
		if err := w.tracer.write(path); err != nil {
			t.Error(err)
		}
	}, spoil...)
}

// TestTraces writes traces of short histories. One history in five has one key, one in five has parked messages that hold
// their keys, and two in five have suspended processes. One in a hundred is as long as those of TestSimulation. The test fails
// if the simulation finds a problem in a history.
func TestTraces(t *testing.T) {
	t.Parallel()
	if *traceFolder == "" {
		t.Skip("this test runs only with the flag -traces")
	}
	const together = 100
	for first := 0; first < *traceCount; first += together {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			t.Parallel()
			for seed := first; seed < min(first+together, *traceCount); seed++ {
				problems := traceOf(t, filepath.Join(*traceFolder, fmt.Sprintf("%06d.jsonl", seed)), uint64(seed+1), nil, func(w *world) {
					if seed%*traceLong != 0 {
						w.course.lasts, w.course.unfinished = 20*time.Second, true
					}
					switch seed % 5 {
					case 0:
						holds(&w.course)
					case 1:
						hasOneKey(&w.course)
					case 2, 3:
						w.course.stalls, w.course.steady = true, false
					}
				})
				if len(problems) > 0 {
					t.Errorf("history %d: %s", seed, problems[0])
				}
			}
		})
	}
}

// TestTracesOfMutants writes traces of histories with stores and options that are broken on purpose, and the problems that the
// simulation finds in each.
func TestTracesOfMutants(t *testing.T) {
	t.Parallel()
	if *traceFolder == "" {
		t.Skip("this test runs only with the flag -traces")
	}
	mutants := map[string]mutant{}
	for name, wrap := range brokenStores() {
		mutants[name] = mutant{wrap: wrap}
	}
	for _, more := range []map[string]mutant{missingProtection(), reusedIDs(), brokenHolds()} {
		maps.Copy(mutants, more)
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(*traceFolder, "mutants", name)
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			problem := ""
			var spoil []func(*relay.SinkOptions)
			if m.spoil != nil {
				spoil = append(spoil, m.spoil)
			}
			for seed := uint64(1); seed <= 3; seed++ {
				problems := traceOf(t, filepath.Join(folder, fmt.Sprintf("%06d.jsonl", seed)), seed, m.wrap, m.prepare, spoil...)
				if problem == "" && len(problems) > 0 {
					problem = problems[0]
				}
			}
			for seed := uint64(1); seed <= 60 && problem == ""; seed++ {
				if problems := simulateAs(t, seed, m.wrap, m.play, spoil...); len(problems) > 0 {
					problem = problems[0]
				}
			}
			if err := os.WriteFile(filepath.Join(folder, "problem.txt"), []byte(problem), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}
