package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A survey searches for the messages that a drain would leave behind, and finds the reasons. drain.go decides when a survey runs.

// survey is one search for rows that are due, and its results. It runs concurrently with the loop, on copies of the loop's state.
type survey struct {
	lanes  map[int]bool // only messages of these lanes count; nil if messages of all lanes count
	topics []string     // only messages of these topics count; empty if messages of all topics count
	byRows bool
	pauses *pauses
	sinks  []bool // by queue: whether the sink is paused
	before int64  // the id of the row that the previous survey found unread; 0 if it found none
	began  time.Time

	heldUp   map[int64]bool                          // by id: deferred rows that are due but wait for another row of their key
	isPaused map[storage.ControlKind]map[string]bool // by kind of pause, the names of paused topics, keys and sinks that hold back messages
	unrouted map[string]bool                         // topics without a route
	unread   *storage.Row                            // a message that could be delivered; nil if none was found
	err      error
}

// surveyor carries out surveys.
type surveyor struct {
	base    *base
	routes  *router
	jobs    chan *survey
	results chan<- func()   // functions that the loop calls
	after   func(s *survey) // called in the loop when the survey has ended
}

// work carries out surveys, one at a time, until the context ends.
func (v *surveyor) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-v.jobs:
			if s.err = v.survey(ctx, s); s.err != nil {
				v.base.failed("drain", s.err)
			}
			v.results <- func() { v.after(s) }
		}
	}
}

// survey reads due rows until it has judged all of them, or has found a reason why the drain can't succeed.
func (v *surveyor) survey(ctx context.Context, s *survey) error {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	for _, limit := range []int{surveyRows, 0} { // 0 means no limit
		var rows []storage.Row
		var judged error
		met := 0
		err := v.base.store.Remaining(ctx, limit, func(row *storage.Row) (more bool) {
			met++
			if s.lanes != nil && !s.lanes[row.Lane] || len(s.topics) > 0 && !slices.Contains(s.topics, row.Message.Topic) {
				return true
			}
			if rows = append(rows, *row); len(rows) < surveyRows {
				return true
			}
			judged = s.judge(ctx, v.base.store, v.routes, rows)
			rows = rows[:0]
			return judged == nil && !s.found()
		})
		if err = errors.Join(err, judged); err == nil && !s.found() {
			err = s.judge(ctx, v.base.store, v.routes, rows)
		}
		if err != nil {
			return fmt.Errorf("search for due messages: %w", err)
		}
		if s.found() || met < surveyRows {
			break
		}
	}
	return nil
}

// drained returns the error of a drain that leaves behind the messages that the survey found. It returns nil if the survey found no
// such message and didn't fail.
func (s *survey) drained() error {
	var problems []error
	if s.err != nil {
		problems = append(problems, fmt.Errorf("drained, but it is unknown whether due messages are left: %w", s.err))
	}
	var paused []string
	for _, kind := range slices.Sorted(maps.Keys(s.isPaused)) {
		for _, name := range slices.Sorted(maps.Keys(s.isPaused[kind])) {
			paused = append(paused, (&storage.Control{Kind: kind, Name: name}).String())
		}
	}
	if len(paused) > 10 {
		paused = append(paused[:10], "…")
	}
	if len(paused) > 0 {
		problems = append(problems, fmt.Errorf("drained, but paused messages are left (%s); resume them", strings.Join(paused, ", ")))
	}
	if len(s.unrouted) > 0 {
		problems = append(problems, unroutedLeft(s.unrouted))
	}
	if s.unread != nil {
		problems = append(problems, fmt.Errorf("drained, but a due message is left that the relay can't read or claim: row %d in lane %d, message %s; `rowrelay check` may say why",
			s.unread.ID, s.unread.Lane, s.unread.Message.ID))
	}
	return errors.Join(problems...)
}

const (
	// surveyTimeout limits the duration of a survey. Reading a million due rows of other relays' lanes or topics takes a few
	// seconds.
	surveyTimeout = time.Minute

	// surveyRows is how many rows one call of judge examines. It is also the row limit of the first query; usually no second query
	// is needed.
	surveyRows = 1000
)

// found reports whether the survey found a reason why the drain can't succeed now.
func (s *survey) found() bool { return len(s.isPaused)+len(s.unrouted) > 0 || s.unread != nil }

// queues returns the indexes of the queues that need a message. These are its sinks' queues, or the queue for messages without a
// route.
func (s *survey) queues(routes *router, topic, sinks string) []int {
	queues := routes.named(sinks)
	if sinks == "" {
		queues = routes.find(topic).sinks
	}
	if s.byRows && len(queues) > 1 {
		return []int{len(routes.names)}
	}
	return queues
}

// judge finds out why rows are left. If it finds no reason for some rows, it sets s.unread to one of them.
func (s *survey) judge(ctx context.Context, store storage.Store, routes *router, rows []storage.Row) error {
	slices.SortFunc(rows, func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
	var unread []storage.Row
	passed := map[keyRef]string{} // keys that have a row of a paused topic, each with that topic
	for i := range rows {
		explained := true
		for _, queue := range s.queues(routes, rows[i].Message.Topic, rows[i].Sinks) {
			explained = s.explain(routes, passed, &rows[i], queue) && explained
		}
		if !explained {
			unread = append(unread, rows[i])
		}
	}
	if !s.byRows {
		var err error
		if unread, err = s.withoutHeldUp(ctx, store, routes, unread); err != nil {
			return err
		}
	}
	if len(unread) > 0 {
		s.unread = &unread[max(0, slices.IndexFunc(unread, func(row storage.Row) bool { return row.ID == s.before }))]
	}
	return nil
}

// withoutHeldUp removes the rows whose key is blocked by another row at each of their sinks. A deferred row that was removed no
// longer counts as blocking. Otherwise two due rows of one key would block each other, and the survey would find neither.
func (s *survey) withoutHeldUp(ctx context.Context, store storage.Store, routes *router, rows []storage.Row) ([]storage.Row, error) {
	keyOf := func(row *storage.Row) storage.LaneKey { return storage.LaneKey{Lane: row.Lane, Key: row.Message.Key} }
	asked := map[storage.LaneKey]bool{}
	for i := range rows {
		if rows[i].Message.Key != "" {
			asked[keyOf(&rows[i])] = true
		}
	}
	if len(asked) == 0 {
		return rows, nil
	}
	blocked, err := store.BlockedAmong(ctx, slices.Collect(maps.Keys(asked)))
	if err != nil {
		return nil, err
	}
	type place struct {
		storage.LaneKey
		queue int
	}
	holders := map[place][]int64{} // the ids of the rows that block the key
	for _, b := range blocked {
		for _, queue := range s.queues(routes, b.Topic, b.Sinks) {
			at := place{storage.LaneKey{Lane: b.Lane, Key: b.Key}, queue}
			holders[at] = append(holders[at], b.ID)
		}
	}
	return slices.DeleteFunc(rows, func(row storage.Row) bool {
		for _, queue := range s.queues(routes, row.Message.Topic, row.Sinks) {
			waits := func(id int64) bool { return id != row.ID && !s.heldUp[id] }
			if !slices.ContainsFunc(holders[place{keyOf(&row), queue}], waits) {
				return false
			}
		}
		if row.Deferred {
			s.heldUp[row.ID] = true
		}
		return true
	}), nil
}

// explain records why a row is left for a queue, and reports whether it found a reason.
func (s *survey) explain(routes *router, passed map[keyRef]string, row *storage.Row, queue int) bool {
	note := func(kind storage.ControlKind, name string) bool {
		if s.isPaused[kind] == nil {
			s.isPaused[kind] = map[string]bool{}
		}
		s.isPaused[kind][name] = true
		return true
	}
	m, ref := &row.Message, keyRef{queue, row.Message.Key}
	topic, follows := passed[ref]
	switch {
	case queue == len(routes.names):
		s.unrouted[m.Topic] = true
		return true
	case s.pauses != nil && s.pauses.topics[m.Topic]:
		if m.Key != "" && !s.byRows {
			passed[ref] = m.Topic
		}
		return note(storage.PauseTopic, m.Topic)
	case s.pauses != nil && !s.byRows && m.Key != "" && s.pauses.keys[m.Key]:
		return note(storage.PauseKey, m.Key)
	case s.sinks[queue]:
		return note(storage.PauseSink, routes.names[queue])
	case follows:
		return note(storage.PauseTopic, topic)
	default:
		return false
	}
}
