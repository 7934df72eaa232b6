package memstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// sampled is the maximum number of pending rows that Status counts by topic.
const sampled = 1000

// listed is the maximum number of rows in a listing if the filter has no limit.
const listed = 100

// List implements [storage.Operator].
func (s *Store) List(ctx context.Context, filter storage.Filter) (infos []storage.Info, err error) {
	err = s.do(ctx, OpList, func() error {
		rows := s.db.selected(filter)
		limit := cmp.Or(filter.Limit, listed)
		left := cmp.Or(filter.MaxBytes, storage.ListBytes)
		for i, r := range rows[:min(len(rows), limit)] {
			if left <= 0 && r.row.ID != rows[i-1].row.ID {
				break
			}
			info := r.info(s.db.now())
			if len(filter.IDs) == 0 {
				info.AttemptLog = nil
			}
			infos = append(infos, info)
			left -= len(r.row.Message.Payload)
		}
		return nil
	})
	return infos, err
}

// Find implements [storage.Operator]. It always searches all rows.
func (s *Store) Find(ctx context.Context, filter storage.Filter, _ time.Duration) (storage.Found, error) {
	infos, err := s.List(ctx, filter)
	return storage.Found{Infos: infos}, err
}

// Requeue implements [storage.Operator].
func (s *Store) Requeue(ctx context.Context, filter storage.Filter) (int, error) {
	return s.changeParked(ctx, OpRequeue, filter, parked, func(r *record) {
		if r.state == storage.StateRetry {
			now := r.inState(storage.StateRetry)
			now.row.Message.AvailableAt = s.db.now()
			s.db.held.put(now)
			return
		}
		s.db.held.put(r.requeued(s.db.now()))
	})
}

// Redirect implements [storage.Operator].
func (s *Store) Redirect(ctx context.Context, filter storage.Filter, sink string) (int, error) {
	alone := func(r *record) bool {
		rows := s.db.hotRows(func(*record) bool { return true })
		for _, held := range s.db.held.rows {
			rows = append(rows, held)
		}
		return r.row.Holds == storage.NoHold && !slices.ContainsFunc(rows, func(other *record) bool {
			return other != r && other.row.ID == r.row.ID && other.row.Message.ID == r.row.Message.ID
		})
	}
	if filter.State == storage.StatePending {
		return s.redirectWaiting(ctx, filter, sink, alone)
	}
	return s.changeParked(ctx, OpRequeue, filter, alone, func(r *record) {
		s.db.held.take(r.identity())
		changed := r.requeued(s.db.now())
		changed.row.Sinks = sink
		s.db.held.put(changed)
	})
}

// redirectWaiting redirects pending, retrying and scheduled messages.
func (s *Store) redirectWaiting(ctx context.Context, filter storage.Filter, sink string, alone func(*record) bool) (changed int, err error) {
	from := filter.Sink
	filter.State = ""
	err = s.do(ctx, OpRequeue, func() error {
		for _, r := range s.db.selected(filter) {
			waits := r.state == storage.StatePending || r.state == storage.StateScheduled || r.state == storage.StateRetry
			if !waits || r.row.Sinks != from || r.shown(s.db.now()) == storage.StateClaimed || !alone(r) || filter.Limit > 0 && changed == filter.Limit {
				continue
			}
			to := r.unclaimed().withSinks(sink)
			to.row.Attempts, to.row.Crashes = 0, 0
			if r.state == storage.StatePending {
				to.state = storage.StateScheduled
			}
			if r.state == storage.StateRetry {
				to.row.Message.AvailableAt = time.Time{}
			}
			s.db.move(r, to, false)
			changed++
			s.db.note(Change{Op: OpRequeue, Lane: r.row.Lane, ID: r.row.ID, From: r.state, To: to.state})
		}
		return nil
	})
	return changed, err
}

// Skip implements [storage.Operator].
func (s *Store) Skip(ctx context.Context, filter storage.Filter) (int, error) {
	return s.changeParked(ctx, OpSkip, filter, s.db.relaysChange, func(r *record) {
		s.db.held.put(r.wanted(storage.WantSkip, s.db.now()))
	})
}

// Discard implements [storage.Operator].
func (s *Store) Discard(ctx context.Context, filter storage.Filter) (int, error) {
	return s.changeParked(ctx, OpDiscard, filter, parked, func(r *record) {
		if s.db.relaysChange(r) {
			s.db.held.put(r.wanted(storage.WantDiscard, s.db.now()))
		} else {
			s.db.held.take(r.identity())
		}
	})
}

// isCopy reports whether a message is a dead letter or was written by a replay.
func isCopy(m outbox.Message) bool {
	for name := range m.Headers {
		if strings.HasPrefix(name, "rowrelay-dead-letter-") || name == storage.ReplayedHeader {
			return true
		}
	}
	return false
}

// Parked implements [storage.Operator].
func (s *Store) Parked(ctx context.Context, filter storage.Filter, within int64, each func(storage.Parked)) error {
	var found []storage.Parked
	filter.AfterID = 0
	err := s.do(ctx, OpParked, func() error {
		last := map[string]int64{} // the highest delivered id of each key
		for _, r := range s.db.selected(filter) {
			if r.state != storage.StateError {
				continue
			}
			m := r.row.Message
			found = append(found, storage.Parked{ID: r.row.ID, Lane: r.row.Lane, Topic: m.Topic, Key: m.Key, Sinks: r.row.Sinks, HoldsKey: r.holds(), Error: shortError(r.lastError)})
		}
		for _, r := range s.db.done {
			if len(found) > 0 && r.row.ID-found[0].ID <= within && !isCopy(r.row.Message) {
				last[r.row.Message.Key] = max(last[r.row.Message.Key], r.row.ID)
			}
		}
		for i := range found {
			found[i].Overtaken = found[i].Key != "" && last[found[i].Key] > found[i].ID
		}
		return nil
	})
	if filter.NewestFirst {
		slices.Reverse(found)
	}
	for _, row := range found {
		each(row)
	}
	return err
}

func shortError(text string) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), storage.MostParkedError)])
}

func parked(*record) bool { return true }

// relaysChange reports whether a relay must carry out an operator's decision about the row, because
// only a relay can unblock the row's key. This is the case if the row holds its key, or if it is a
// retry and the table is claimed by lanes.
func (db *DB) relaysChange(r *record) bool {
	if r.state == storage.StateRetry {
		return db.claim != storage.ByRows
	}
	return r.holds()
}

// changeParked calls `change` for each parked row that the filter selects and `which` accepts. If the
// filter's state is retry, it calls `change` for retries that are not due yet instead of for parked
// rows.
func (s *Store) changeParked(ctx context.Context, op Op, filter storage.Filter, which func(*record) bool, change func(*record)) (changed int, err error) {
	err = s.do(ctx, op, func() error {
		for _, r := range s.db.selected(filter) {
			waits := filter.State == storage.StateRetry && r.state == storage.StateRetry && r.row.Holds == storage.NoHold && !r.due(s.db.now())
			if r.state != storage.StateError && !waits || !which(r) || filter.Limit > 0 && changed == filter.Limit {
				continue
			}
			change(r)
			changed++
			line := Change{Op: op, Lane: r.row.Lane, ID: r.row.ID, From: r.state}
			if now := s.db.held.rows[r.identity()]; now != nil {
				line.To = now.state
			}
			s.db.note(line)
		}
		return nil
	})
	return changed, err
}

// selected returns the rows of all tables that the filter selects, in the order of ids.
func (db *DB) selected(filter storage.Filter) []*record {
	now := db.now()
	rows := db.hotRows(func(r *record) bool { return r.matches(filter, now) })
	add := func(r *record) {
		if r.matches(filter, now) {
			rows = append(rows, r)
		}
	}
	for _, r := range db.done {
		add(r)
	}
	for _, r := range db.held.rows {
		add(r)
	}
	slices.SortFunc(rows, byID)
	return rows
}

func (r *record) matches(filter storage.Filter, now time.Time) bool {
	message := r.row.Message
	return r.row.ID > filter.AfterID &&
		(len(filter.IDs) == 0 || slices.Contains(filter.IDs, message.ID) || slices.Contains(filter.IDs, strconv.FormatInt(r.row.ID, 10))) &&
		(filter.Topic == "" || filter.Topic == message.Topic) &&
		strings.HasPrefix(message.Topic, filter.TopicPrefix) &&
		(filter.Key == "" || filter.Key == message.Key) &&
		(filter.Sink == "" || slices.Contains(storage.SplitSinks(r.row.Sinks), filter.Sink)) &&
		(filter.State == "" || filter.State == r.shown(now)) &&
		!r.row.CreatedAt.Before(filter.Since) &&
		(!filter.Holds || r.state == storage.StateError && r.holds()) &&
		strings.Contains(r.lastError, filter.Error)
}

// shown returns the row's state as in the view outbox_messages.
func (r *record) shown(now time.Time) storage.State {
	switch {
	case r.state == storage.StatePending && r.token != "" && r.claimedUntil.After(now):
		return storage.StateClaimed
	case r.state == storage.StatePending && !r.due(now):
		return storage.StateScheduled
	case r.state == storage.StateScheduled && r.due(now):
		return storage.StatePending
	default:
		return r.state
	}
}

func (r *record) info(now time.Time) storage.Info {
	info := storage.Info{
		Row:        r.read(now),
		State:      r.shown(now),
		LastError:  r.lastError,
		Receipt:    r.receipt,
		ClaimedBy:  r.claimedBy,
		FinishedAt: r.finishedAt,
		AttemptLog: r.attemptLog,
	}
	info.Deferred = r.state == storage.StateScheduled || r.state == storage.StateRetry || r.state == storage.StateError
	info.Retrying = r.state == storage.StateRetry
	return info
}
