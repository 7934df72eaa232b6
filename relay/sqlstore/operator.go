package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// This file has the methods by which operators read a status, list messages, and change parked and waiting messages.

const (
	listed     = 100  // maximum number of rows of a listing whose filter has no limit
	changeStep = 1000 // maximum number of rows of one change
)

// Status implements [storage.Operator]. It counts up to 50,000 rows of each kind. If there are more pending
// or done rows, it returns an estimate: on PostgreSQL and SQL Server from the server's statistics, and on other
// databases the difference between the highest and the lowest id. If there are more scheduled, retry or parked
// rows, it returns a lower bound.
func (s *Store) Status(ctx context.Context) (storage.Status, error) {
	return try(ctx, s, "read the status of table", func() (storage.Status, error) {
		status, err := backend.ReadStatus(ctx, s.db, s.capabilities)
		if err == nil {
			status.Controls, err = backend.ReadControls(ctx, s.db, s.capabilities.Statements)
		}
		return status, err
	})
}

// List implements [storage.Operator].
func (s *Store) List(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
	selected, err := selection(filter)
	if err != nil {
		return nil, err
	}
	return try(ctx, s, "list table", func() ([]storage.Info, error) {
		infos, err := s.backend.List(ctx, selected)
		if err == nil && selected.ByID {
			err = s.addLogs(ctx, infos)
		}
		return infos, err
	})
}

// addLogs fills in the logs of failed attempts. Delivered messages have no log.
func (s *Store) addLogs(ctx context.Context, infos []storage.Info) error {
	var hot, held []storage.RowID
	for i := range infos {
		switch row := (storage.RowID{Lane: infos[i].Lane, ID: infos[i].ID}); infos[i].State {
		case storage.StateDone:
		case storage.StateClaimed:
			hot = append(hot, row)
		case storage.StatePending, storage.StateScheduled: // rows in these states may be in either table
			hot, held = append(hot, row), append(held, row)
		default:
			held = append(held, row)
		}
	}
	for _, rows := range []struct {
		ids  []storage.RowID
		held bool
	}{{hot, false}, {held, true}} {
		if len(rows.ids) == 0 {
			continue
		}
		logs, err := backend.ReadAttemptLogs(ctx, s.db, s.backend.AttemptLogs(rows.ids, rows.held))
		if err != nil {
			return err
		}
		for i := range infos {
			row := &infos[i]
			if log := logs[backend.LogOf{RowID: storage.RowID{Lane: row.Lane, ID: row.ID}, MessageID: strings.ToLower(row.Message.ID), Sinks: row.Sinks}]; log != nil && row.State != storage.StateDone {
				row.AttemptLog = log
			}
		}
	}
	return nil
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// selection separates a filter's row ids from its message ids, and sets the default limits of a listing.
func selection(filter storage.Filter) (backend.Filter, error) {
	selected := backend.Filter{Filter: filter, ByID: len(filter.IDs) > 0}
	if filter.Holds && filter.State == "" { // only parked rows hold their keys
		selected.State = storage.StateError
	}
	selected.Limit, selected.MaxBytes = cmp.Or(max(0, filter.Limit), listed), cmp.Or(max(0, filter.MaxBytes), storage.ListBytes)
	for _, text := range filter.IDs {
		lower := strings.ToLower(text)
		if id, err := strconv.ParseInt(text, 10, 64); err == nil {
			selected.RowIDs = append(selected.RowIDs, id)
		} else if uuid.MatchString(lower) {
			selected.MessageIDs = append(selected.MessageIDs, lower)
		} else {
			return backend.Filter{}, fmt.Errorf("%.100q is not an id: give a row's id in decimal or a message's id (a UUID)", text)
		}
	}
	return selected, nil
}

// Requeue implements [storage.Operator].
func (s *Store) Requeue(ctx context.Context, filter storage.Filter) (int, error) {
	if filter.State == storage.StateRetry {
		return s.changeParked(ctx, "retry messages of table", filter, backend.RetryNow, "")
	}
	return s.changeParked(ctx, "requeue messages of table", filter, backend.Requeue, "")
}

// Redirect implements [storage.Operator].
func (s *Store) Redirect(ctx context.Context, filter storage.Filter, sink string) (int, error) {
	if sink == "" || len(sink) > storage.MostSinks || strings.Contains(sink, ",") {
		return 0, fmt.Errorf("invalid sink name %.100q", sink)
	}
	const what = "redirect messages of table"
	if filter.State != storage.StatePending {
		return s.changeParked(ctx, what, filter, backend.Redirect, sink)
	}
	if filter.Sink == "" || filter.Sink == sink {
		return 0, fmt.Errorf("%s %s: to redirect waiting messages, name two different sinks: the sink that they wait for, which no relay may have in its configuration, and the new one", what, s.table)
	}
	changed, limit := 0, filter.Limit
	for _, change := range []backend.ParkedChange{backend.RedirectRetry, backend.RedirectScheduled, backend.RedirectPending} {
		filter.State = change.State()
		n, err := s.changeParked(ctx, what, filter, change, sink)
		if changed += n; err != nil || limit > 0 && changed == limit {
			return changed, err
		}
		if limit > 0 {
			filter.Limit = limit - changed
		}
	}
	return changed, nil
}

// Skip implements [storage.Operator].
func (s *Store) Skip(ctx context.Context, filter storage.Filter) (int, error) {
	const what = "skip messages of table"
	if filter.State == storage.StateRetry {
		if byRows, err := s.byRows(ctx, what); byRows || err != nil {
			return 0, err
		}
		return s.changeParked(ctx, what, filter, backend.AskSkipRetry, "")
	}
	return s.changeParked(ctx, what, filter, backend.AskSkip, "")
}

// Discard implements [storage.Operator].
func (s *Store) Discard(ctx context.Context, filter storage.Filter) (int, error) {
	const what = "discard messages of table"
	if filter.State == storage.StateRetry {
		byRows, err := s.byRows(ctx, what)
		if err != nil {
			return 0, err
		}
		change := backend.AskDiscardRetry
		if byRows {
			change = backend.DiscardRetry
		}
		return s.changeParked(ctx, what, filter, change, "")
	}
	asked, err := s.changeParked(ctx, what, filter, backend.AskDiscard, "")
	if err != nil || filter.Limit > 0 && asked >= filter.Limit {
		return asked, err
	}
	if filter.Limit > 0 {
		filter.Limit -= asked
	}
	discarded, err := s.changeParked(ctx, what, filter, backend.DiscardAtOnce, "")
	return asked + discarded, err
}

// Parked implements [storage.Operator].
func (s *Store) Parked(ctx context.Context, filter storage.Filter, within int64, each func(storage.Parked)) error {
	if filter.State != "" && filter.State != storage.StateError {
		return nil
	}
	filter.AfterID = 0
	selected, err := selection(filter)
	if err != nil {
		return err
	}
	const what = "list parked messages of table"
	brokenOff, err := try(ctx, s, what, func() (brokenOff, err error) {
		given := false
		err = s.backend.Parked(ctx, selected, within, func(row storage.Parked) { given = true; each(row) })
		if given { // a second attempt would call each() for the same rows again
			return err, nil
		}
		return nil, err
	})
	if brokenOff != nil {
		return fmt.Errorf("%s %s: %w", what, s.table, brokenOff)
	}
	return err
}

// byRows reports whether the table is claimed by rows. If it is, retries don't block their keys, and no relay carries out a skip or a
// discard of a retry.
func (s *Store) byRows(ctx context.Context, what string) (bool, error) {
	return try(ctx, s, what, func() (bool, error) {
		var claim storage.Claim
		err := backend.One(ctx, s.db, s.capabilities.Statements.Query("claim mode"), &claim)
		return claim == storage.ByRows, err
	})
}

// changeParked changes all rows that the filter selects, at most changeStep in one step. It returns the number
// of changed rows, even with an error. The last argument is the sink to which the change redirects rows, or
// empty.
func (s *Store) changeParked(ctx context.Context, what string, filter storage.Filter, change backend.ParkedChange, sink string) (changed int, err error) {
	if filter.State != "" && filter.State != change.State() {
		return 0, nil
	}
	selected, err := selection(filter)
	if err != nil {
		return 0, err
	}
	selected.To = sink
	limit := filter.Limit
	if limit <= 0 {
		limit = math.MaxInt
	}
	for changed < limit {
		selected.Limit = min(changeStep, limit-changed)
		ids, err := write(ctx, s, what, func() ([]int64, uint64, error) {
			ids, err := s.backend.ChangeParked(ctx, selected, change)
			return ids, 0, err
		})
		changed += len(ids)
		if err != nil || len(ids) < selected.Limit {
			return changed, err
		}
		for _, id := range ids { // the last id may have more rows, for other sinks
			selected.AfterID = max(selected.AfterID, id-1)
		}
	}
	return changed, nil
}
