package relay_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// mutant is a store, an option or an operator that is broken on purpose.
type mutant struct {
	wrap    func(storage.Store) storage.Store
	change  func(*course) // sets the kind of the histories
	spoil   func(*relay.SinkOptions)
	operate func(*memstore.DB) storage.Operator
	want    string // a problem that the mutant causes
}

// play plays a history of the kind in which the mutant causes a problem.
func (m *mutant) play(w *world) {
	m.prepare(w)
	w.play()
}

func (m *mutant) prepare(w *world) {
	w.operate = m.operate
	if m.change != nil {
		m.change(&w.course)
	}
}

func brokenStores() map[string]func(storage.Store) storage.Store {
	return map[string]func(storage.Store) storage.Store{
		"late rows are not reported":             func(s storage.Store) storage.Store { return neverLate{s} },
		"late rows are reported one page later":  func(s storage.Store) storage.Store { return &tellsLate{s, -1} },
		"late rows are left out of pages":        func(s storage.Store) storage.Store { return readsOn{s, map[int]int64{}} },
		"a page reports that it is complete":     func(s storage.Store) storage.Store { return alwaysWhole{s} },
		"the safe id passes open transactions":   func(s storage.Store) storage.Store { return boldSafeID{s} },
		"a full page was read to the end":        func(s storage.Store) storage.Store { return boldPages{s} },
		"held keys are forgotten at takeover":    func(s storage.Store) storage.Store { return forgetsKeys{s} },
		"held keys are not found":                func(s storage.Store) storage.Store { return findsNoKeys{s} },
		"held keys are found by another row":     func(s storage.Store) storage.Store { return findsOtherKeys{s} },
		"leases end before the relay knows":      func(s storage.Store) storage.Store { return shortLeases{s} },
		"retries are never due":                  func(s storage.Store) storage.Store { return losesRetries{s} },
		"scheduled rows are due immediately":     func(s storage.Store) storage.Store { return sendsEarly{s} },
		"sent batches are forgotten at takeover": func(s storage.Store) storage.Store { return forgetsBatches{s, s.(storage.Journaler)} },
		"half a batch's rows are not found":      func(s storage.Store) storage.Store { return findsHalf{s, s.(storage.Journaler)} },
		"the database's time is not reported":    func(s storage.Store) storage.Store { return tellsTime{s, -time.Hour} },
		"the database's time is an hour ahead":   func(s storage.Store) storage.Store { return tellsTime{s, time.Hour} },
		"rows have no expiry":                    func(s storage.Store) storage.Store { return hidesExpiry{s} },
		"discarded rows are done":                func(s storage.Store) storage.Store { return keepsDiscarded{s} },
		"discarded rows stay":                    func(s storage.Store) storage.Store { return losesDiscards{s} },
		"a journal has only the last batch":      func(s storage.Store) storage.Store { return lastAlone{s, s.(storage.Journaler)} },
	}
}

// TestSimulationFindsBrokenStores shows that the simulation can fail: each of these stores breaks one guarantee, and some history
// detects it.
func TestSimulationFindsBrokenStores(t *testing.T) {
	t.Parallel()
	onlyMutants(t)
	for name, wrap := range brokenStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				if len(simulate(t, seed, wrap)) > 0 {
					return
				}
			}
			t.Error("no history detected this store")
		})
	}
}

func missingProtection() map[string]mutant {
	return map[string]mutant{
		"no breaker":             {spoil: func(o *relay.SinkOptions) { o.BreakerThreshold = -1 }},
		"one key, judged alone":  {change: hasOneKey, spoil: func(o *relay.SinkOptions) { o.JudgeAloneAfter = relay.JudgeAtOnce }},
		"one key, judged sooner": {change: hasOneKey, spoil: func(o *relay.SinkOptions) { o.JudgeAloneAfter = 5 * time.Second }},
	}
}

// TestSimulationFindsMissingProtection shows that the simulation detects missing options: without each of them, messages are
// parked in an outage that looks like rejections.
func TestSimulationFindsMissingProtection(t *testing.T) {
	t.Parallel()
	onlyMutants(t)
	for name, m := range missingProtection() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				if len(simulateAs(t, seed, nil, m.play, m.spoil)) > 0 {
					return
				}
			}
			t.Error("no history detected that messages are parked in an outage")
		})
	}
}

func reusedIDs() map[string]mutant {
	settles := func(s storage.Store) storage.Store { return settlesByID{s, s.(storage.Journaler)} }
	hides := func(s storage.Store) storage.Store { return &hidesFalls{Store: s} }
	return map[string]mutant{
		"lost seconds, settlements by id only": {wrap: settles, change: losesMany, want: unsent},
		"renumbering, undetected":              {wrap: hides, change: renumbers, want: `ended as "pending"`},
		"lost seconds, all in one epoch":       {wrap: func(s storage.Store) storage.Store { return oneEpoch{s, s.(storage.Journaler)} }, change: losesMany, want: overtaken},
	}
}

// TestSimulationsFindReusedIDs shows that the histories with reused ids can fail: for each of these mutants, some history has
// the wanted problem.
func TestSimulationsFindReusedIDs(t *testing.T) {
	t.Parallel()
	onlyMutants(t)
	for name, m := range reusedIDs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				problems := simulateAs(t, seed, m.wrap, m.play)
				if slices.ContainsFunc(problems, func(problem string) bool { return strings.Contains(problem, m.want) }) {
					return
				}
			}
			t.Error("no history detected this store")
		})
	}
}

// losesMany makes the server lose its last second so often that one of five histories detects such a mutant.
func losesMany(c *course) { c.loses = 5 * time.Second }

// sendsEarly hides that a row is scheduled, so that the row is sent early, and its writer may cancel it after that.
type sendsEarly struct{ storage.Store }

func (s sendsEarly) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	for i := range page.Rows {
		page.Rows[i].Later = false
	}
	return page, err
}

// tellsTime adds an error to the database's time in heartbeats.
type tellsTime struct {
	storage.Store
	by time.Duration
}

func (s tellsTime) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
	members, err := s.Store.Heartbeat(ctx, self, ttl)
	members.Now = members.Now.Add(s.by)
	return members, err
}

// hidesExpiry returns rows without the time at which they expire.
type hidesExpiry struct{ storage.Store }

func (s hidesExpiry) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	for i := range page.Rows {
		page.Rows[i].Message.ExpiresAt = time.Time{}
	}
	return page, err
}

// keepsDiscarded marks rows as done instead of discarding them. losesDiscards leaves them unchanged, but reports that they
// were changed.
type keepsDiscarded struct{ storage.Store }

func (s keepsDiscarded) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	settlements = slices.Clone(settlements)
	for i := range settlements {
		if settlements[i].State == storage.StateDiscarded {
			settlements[i].State = storage.StateDone
		}
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

type losesDiscards struct{ storage.Store }

func (s losesDiscards) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	n := len(settlements)
	settlements = slices.DeleteFunc(slices.Clone(settlements), func(s storage.Settlement) bool { return s.State == storage.StateDiscarded })
	counts, err := s.Store.Settle(ctx, name, keep, settlements)
	counts.Changed += n - len(settlements)
	return counts, err
}

// hidesFalls hides that the id sequence was reset: its LastID never falls, it reports no late rows, and its scans don't return
// the new rows.
type hidesFalls struct {
	storage.Store
	lastID, highest int64
}

func (s *hidesFalls) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	s.lastID, s.highest = page.LastID, max(s.highest, page.LastID)
	if page.LastID < s.highest {
		page.LastID, page.LateAfter = s.highest, -1
	}
	return page, err
}

func (s *hidesFalls) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	return s.Store.Scan(ctx, positions, except, func(c storage.Candidate) bool {
		return (s.lastID == s.highest || c.ID > s.lastID) && keep(c)
	})
}

// oneEpoch always returns the same epoch, so that the relay doesn't notice lost commits.
type oneEpoch struct {
	storage.Store
	storage.Journaler
}

func (s oneEpoch) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
	members, err := s.Store.Heartbeat(ctx, self, ttl)
	members.Epoch = ""
	return members, err
}

func (s oneEpoch) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	page.Epoch = ""
	return page, err
}

// settlesByID replaces the message id of each settlement by that of the row that has the settlement's id now. So the store's
// comparison of the message ids always succeeds.
type settlesByID struct {
	storage.Store
	storage.Journaler
}

func (s settlesByID) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	var ids []storage.RowID
	for _, settlement := range settlements {
		ids = append(ids, storage.RowID{Lane: settlement.Lane, ID: settlement.ID})
	}
	rows, err := s.Pick(ctx, ids)
	if err != nil {
		return storage.Settled{}, err
	}
	settlements = slices.Clone(settlements)
	for i := range settlements {
		for _, row := range rows {
			if row.Lane == settlements[i].Lane && row.ID == settlements[i].ID && row.Deferred == settlements[i].Deferred {
				settlements[i].MessageID = row.Message.ID
			}
		}
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

type neverLate struct{ storage.Store }

func (s neverLate) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	page.LateAfter = -1
	return page, err
}

// tellsLate returns, with each page, the LateAfter of the previous page.
type tellsLate struct {
	storage.Store
	untold int64
}

func (s *tellsLate) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	if err == nil {
		page.LateAfter, s.untold = s.untold, page.LateAfter
	}
	return page, err
}

// readsOn returns only rows that are above all rows that it has already returned for their lane. So its pages have no late
// rows.
type readsOn struct {
	storage.Store
	last map[int]int64
}

func (s readsOn) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
	grants, err := s.Store.Acquire(ctx, name, count, ttl)
	for _, g := range grants {
		delete(s.last, g.Lane)
	}
	return grants, err
}

func (s readsOn) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	if len(request.Positions) == 0 || request.Positions[0].Until > 0 {
		return page, err // a read of skipped rows
	}
	page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool {
		old := row.ID <= s.last[row.Lane]
		s.last[row.Lane] = max(s.last[row.Lane], row.ID)
		return old
	})
	page.More = page.More && len(page.Rows) > 0 // without this, the engine would read the same empty page for ever
	return page, err
}

// alwaysWhole never sets a page's More, even if a limit ended the page.
type alwaysWhole struct{ storage.Store }

func (s alwaysWhole) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	page.More = false
	return page, err
}

type boldSafeID struct{ storage.Store }

func (s boldSafeID) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	page.SafeID = 1 << 40
	return page, err
}

// boldPages reports that a page which a limit ended was read up to the safe id in every lane.
type boldPages struct{ storage.Store }

func (s boldPages) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	if page.More {
		page.Through = page.SafeID
	}
	return page, err
}

type forgetsKeys struct{ storage.Store }

func (s forgetsKeys) BlockedKeys(context.Context, []int, int) ([]storage.BlockedKey, error) {
	return nil, nil
}

type findsNoKeys struct{ storage.Store }

func (s findsNoKeys) BlockedAmong(context.Context, []storage.LaneKey) ([]storage.BlockedKey, error) {
	return nil, nil
}

// findsOtherKeys reports, for blocked keys, the id of a message that doesn't exist, so that the keys wait for ever.
type findsOtherKeys struct{ storage.Store }

func (s findsOtherKeys) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	found, err := s.Store.BlockedAmong(ctx, keys)
	for i := range found {
		found[i].ID += 1 << 40
	}
	return found, err
}

// shortLeases leases lanes for a millisecond instead of the requested time.
type shortLeases struct{ storage.Store }

func (s shortLeases) Acquire(ctx context.Context, name string, count int, _ time.Duration) ([]storage.Grant, error) {
	return s.Store.Acquire(ctx, name, count, time.Millisecond)
}

func (s shortLeases) Renew(ctx context.Context, name string, renewals []storage.Renewal, _ time.Duration) ([]storage.Lease, error) {
	return s.Store.Renew(ctx, name, renewals, time.Millisecond)
}

// losesRetries delays all retries by an hour, which is longer than the history.
type losesRetries struct{ storage.Store }

func (s losesRetries) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	for i := range settlements {
		if settlements[i].State == storage.StateRetry {
			settlements[i].Delay = time.Hour
		}
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

// forgetsBatches doesn't return to a lane's new holder the batches that the last holder was sending.
type forgetsBatches struct {
	storage.Store
	storage.Journaler
}

func (s forgetsBatches) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
	grants, err := s.Store.Acquire(ctx, name, count, ttl)
	for i := range grants {
		grants[i].Batches = nil
	}
	return grants, err
}

// lastAlone stores only the references to the last batch in a lane's journal, and drops references to earlier batches.
type lastAlone struct {
	storage.Store
	storage.Journaler
}

func (s lastAlone) WriteJournal(ctx context.Context, name string, journals []storage.Journal) ([]storage.Lease, error) {
	for i := range journals {
		journals[i].Batches = journals[i].Batches[max(0, len(journals[i].Batches)-1):]
	}
	return s.Journaler.WriteJournal(ctx, name, journals)
}

// findsHalf returns only half of the rows of batches that were in flight.
type findsHalf struct {
	storage.Store
	storage.Journaler
}

func (s findsHalf) Pick(ctx context.Context, rows []storage.RowID) ([]storage.Row, error) {
	found, err := s.Journaler.Pick(ctx, rows)
	return found[:len(found)/2], err
}
