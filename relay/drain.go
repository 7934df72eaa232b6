package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// The end of a drain. Once its reads find nothing more, a survey lists what is due in the table: messages that are
// paused, and messages that could be delivered but that no read found. What must hold: a drain ends without an error only if
// no message is left that is due, whatever hides it from the reads. Messages behind a key that waits for its next attempt
// don't count, nor those in lanes of other relays.

// survey is a listing of what is due, and what it has found. It runs beside the loop, on copies of the loop's state.
type survey struct {
	lanes  map[int]bool // only messages of these lanes; nil: of all
	topics []string     // only messages of these topics; empty: of all
	byRows bool
	pauses *pauses
	sinks  []bool // by queue: paused
	clock  databaseClock

	isPaused map[storage.ControlKind]map[string]bool // the controls that hold something back
	unrouted map[string]bool                         // topics
	unread   *storage.Info                           // the first message that could be delivered; nil if there is none
	err      error
}

// draining is how far the end of a drain has come.
type draining struct {
	surveys chan *survey
	busy    bool
	last    *survey // of the moment; nil once there is something to deliver again
	next    time.Time

	unread int64     // the message that the last survey has found unread; 0: none
	since  time.Time // when it was found first
}

const (
	// surveyInterval is the time between two surveys of a drain that look for the same unread message.
	surveyInterval = 500 * time.Millisecond

	// unreadFor is how long a message stays unread until the drain fails: another transaction may have locked it, or have
	// written it just now.
	unreadFor = 10 * time.Second

	surveyRows  = 1000
	surveyPages = 100 // of each state; the rows behind them aren't looked at
)

// beginSurvey has the table surveyed. all: the messages of other relays' lanes count, too.
func (e *engine) beginSurvey(all bool) {
	s := &survey{byRows: e.options.Claim == storage.ByRows, topics: e.options.Topics, pauses: e.control.pauses, clock: e.clock, isPaused: map[storage.ControlKind]map[string]bool{}, unrouted: map[string]bool{}}
	for _, q := range e.queues {
		s.sinks = append(s.sinks, q.paused)
	}
	if !all && e.lease.relays > 1 {
		s.lanes = e.claiming.ownLanes()
	}
	e.drain.busy = true
	e.drain.surveys <- s
}

// surveyor carries surveys out.
func (e *engine) surveyor(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-e.drain.surveys:
			if s.err = e.base.survey(ctx, e.routes, s); s.err != nil {
				e.failed("drain", s.err)
			}
			e.results <- func() { e.afterSurvey(s) }
		}
	}
}

// afterSurvey has the drain look again if the survey has found a message that could be delivered, or has failed.
func (e *engine) afterSurvey(s *survey) {
	d, now := &e.drain, time.Now()
	d.busy, d.last = false, s
	if s.unread != nil && d.unread != s.unread.ID {
		d.unread, d.since = s.unread.ID, now
	}
	if s.err != nil || s.unread != nil && now.Sub(d.since) < unreadFor {
		d.last, d.next = nil, now.Add(surveyInterval)
		e.poll.empty = 0
		e.claiming.lookEverywhere()
	}
}

// drained returns what a drain ends with that leaves these messages behind.
func (s *survey) drained() error {
	var problems []error
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
		problems = append(problems, fmt.Errorf("drained, but messages are left that are paused (%s); resume these", strings.Join(paused, ", ")))
	}
	if len(s.unrouted) > 0 {
		problems = append(problems, unroutedLeft(s.unrouted))
	}
	if s.unread != nil {
		problems = append(problems, fmt.Errorf("drained, but a message is left that is due, and that the relay can't read or claim: row %d in lane %d, message %s; `rowrelay check` may say why",
			s.unread.ID, s.unread.Lane, s.unread.Message.ID))
	}
	return errors.Join(problems...)
}

// survey lists the messages of each state that may be due, page by page, until all are looked at or one is left.
func (b *base) survey(ctx context.Context, routes *router, s *survey) error {
	operator, ok := b.store.(storage.Operator)
	if !ok {
		return nil // it can't be listed
	}
	for _, state := range []storage.State{storage.StateRetry, storage.StateScheduled, storage.StatePending} { // by rows those that are due become pending
		filter := storage.Filter{State: state, AfterID: math.MinInt64 / 2, Limit: surveyRows, NoPayloads: true}
		for pages := 1; pages <= surveyPages && len(s.isPaused)+len(s.unrouted) == 0 && s.unread == nil; pages++ {
			bounded, cancel := context.WithTimeout(ctx, b.callTimeout)
			rows, err := operator.List(bounded, filter)
			if err == nil {
				err = s.judge(bounded, b.store, routes, rows)
			}
			cancel()
			if err != nil {
				return fmt.Errorf("list what is left: %w", err)
			}
			if len(rows) < surveyRows {
				break
			}
			filter.AfterID = rows[len(rows)-1].ID
		}
	}
	return nil
}

// judge finds out why the rows of a page are left.
func (s *survey) judge(ctx context.Context, store storage.Store, routes *router, rows []storage.Info) error {
	var unread []storage.Info
	passed := map[keyRef]string{} // keys with a row of a paused topic, and the topic
	for i := range rows {
		row := &rows[i]
		if s.lanes != nil && !s.lanes[row.Lane] || len(s.topics) > 0 && !slices.Contains(s.topics, row.Message.Topic) ||
			!row.Message.AvailableAt.IsZero() && !s.clock.passed(row.Message.AvailableAt) { // not due
			continue
		}
		queues := routes.named(row.Sinks)
		if row.Sinks == "" {
			queues = routes.find(row.Message.Topic).sinks
		}
		if s.byRows && len(queues) > 1 {
			queues = []int{len(routes.names)}
		}
		explained := true
		for _, queue := range queues {
			explained = s.explain(routes, passed, row, queue) && explained
		}
		if !explained {
			unread = append(unread, *row)
		}
	}
	if len(unread) == 0 || s.byRows {
		s.unread = first(unread)
		return nil
	}
	var keys []storage.LaneKey // of which some wait for another attempt
	for i := range unread {
		if key := (storage.LaneKey{Lane: unread[i].Lane, Key: unread[i].Message.Key}); key.Key != "" {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b storage.LaneKey) int { return cmp.Or(a.Lane-b.Lane, cmp.Compare(a.Key, b.Key)) })
	blocked, err := store.BlockedAmong(ctx, slices.Compact(keys))
	s.unread = first(slices.DeleteFunc(unread, func(info storage.Info) bool {
		return slices.ContainsFunc(blocked, func(k storage.BlockedKey) bool {
			return k.Lane == info.Lane && k.Key == info.Message.Key && k.ID != info.ID
		})
	}))
	return err
}

// explain notes why a row is left for a queue, and says whether there is a reason.
func (s *survey) explain(routes *router, passed map[keyRef]string, row *storage.Info, queue int) bool {
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

// first returns the first of some rows, or nil.
func first(rows []storage.Info) *storage.Info {
	if len(rows) == 0 {
		return nil
	}
	return &rows[0]
}
