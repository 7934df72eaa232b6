package sqlstore

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const (
	listed     = 100  // rows of a listing without a limit
	changeStep = 1000 // rows of one change
)

// Status implements [storage.Operator]. It counts all rows that are not done, and
// done rows up to a million; if there are more, it returns an estimate, which is
// the server's own on PostgreSQL, and the span of their ids on SQLite.
func (s *Store) Status(ctx context.Context) (storage.Status, error) {
	return try(ctx, s, "read the status of table", func() (storage.Status, error) {
		return backend.ReadStatus(ctx, s.db, s.traits.Queries.Status)
	})
}

// List implements [storage.Operator].
func (s *Store) List(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
	selected, err := selection(filter)
	if err != nil {
		return nil, err
	}
	if selected.Limit <= 0 {
		selected.Limit = listed
	}
	return try(ctx, s, "list table", func() ([]storage.Info, error) { return s.backend.List(ctx, selected) })
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// selection tells the ids of rows from those of messages.
func selection(filter storage.Filter) (backend.Filter, error) {
	selected := backend.Filter{Filter: filter, ByID: len(filter.IDs) > 0}
	for _, text := range filter.IDs {
		lower := strings.ToLower(text)
		if id, err := strconv.ParseInt(text, 10, 64); err == nil {
			selected.RowIDs = append(selected.RowIDs, id)
		} else if uuid.MatchString(lower) {
			selected.MessageIDs = append(selected.MessageIDs, lower)
		} else {
			return backend.Filter{}, fmt.Errorf("%.100q is no message: give a row's id in decimal, or a message's id (a UUID)", text)
		}
	}
	return selected, nil
}

// Requeue implements [storage.Operator].
func (s *Store) Requeue(ctx context.Context, filter storage.Filter) (int, error) {
	return s.changeParked(ctx, "requeue messages of table", filter, false)
}

// Discard implements [storage.Operator].
func (s *Store) Discard(ctx context.Context, filter storage.Filter) (int, error) {
	return s.changeParked(ctx, "discard messages of table", filter, true)
}

// changeParked goes on in steps until nothing is left, and says how many it
// changed, also if it fails on its way.
func (s *Store) changeParked(ctx context.Context, what string, filter storage.Filter, discard bool) (changed int, err error) {
	if filter.State != "" && filter.State != storage.StateError {
		return 0, nil
	}
	selected, err := selection(filter)
	if err != nil {
		return 0, err
	}
	limit := filter.Limit
	if limit <= 0 {
		limit = math.MaxInt
	}
	for changed < limit {
		selected.Limit = min(changeStep, limit-changed)
		ids, err := write(ctx, s, what, func() ([]int64, uint64, error) {
			ids, err := s.backend.ChangeParked(ctx, selected, discard)
			return ids, 0, err
		})
		changed += len(ids)
		if err != nil || len(ids) < selected.Limit {
			return changed, err
		}
		for _, id := range ids {
			selected.AfterID = max(selected.AfterID, id)
		}
	}
	return changed, nil
}
