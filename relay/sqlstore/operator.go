package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

const (
	listed     = 100  // rows of a listing without a limit
	changeStep = 1000 // rows of one change
)

// List implements [relay.Operator].
func (s *Store) List(ctx context.Context, filter relay.Filter) (infos []relay.Info, err error) {
	selected, err := selection(filter)
	if err != nil {
		return nil, err
	}
	if selected.Limit <= 0 {
		selected.Limit = listed
	}
	err = s.try(ctx, "list table", func() error {
		infos, err = s.list(ctx, selected)
		return err
	})
	return infos, err
}

func (s *Store) list(ctx context.Context, filter dialect.Filter) (infos []relay.Info, err error) {
	var info relay.Info
	var finished moment
	scan := newRowScan()
	scan.destinations = append(scan.destinations, &info.State, (*text)(&info.LastError), (*text)(&info.Receipt), (*text)(&info.ClaimedBy), &finished)
	err = each(ctx, s.db, s.dialect.List(s.table, filter), func(rows *sql.Rows) (bool, error) {
		if err := scan.scan(rows); err != nil {
			return false, err
		}
		info.Row, info.FinishedAt = scan.row, time.Time(finished)
		infos = append(infos, info)
		return true, nil
	})
	return infos, err
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// selection tells the ids of rows from those of messages.
func selection(filter relay.Filter) (dialect.Filter, error) {
	selected := dialect.Filter{
		ByID: len(filter.IDs) > 0, Topic: filter.Topic, Key: filter.Key, State: string(filter.State),
		Since: filter.Since, Error: filter.Error, AfterID: filter.AfterID, Limit: filter.Limit,
	}
	for _, text := range filter.IDs {
		lower := strings.ToLower(text)
		if id, err := strconv.ParseInt(text, 10, 64); err == nil {
			selected.IDs = append(selected.IDs, id)
		} else if uuid.MatchString(lower) {
			selected.MessageIDs = append(selected.MessageIDs, lower)
		} else {
			return dialect.Filter{}, fmt.Errorf("%.100q is no message: give a row's id in decimal, or a message's id (a UUID)", text)
		}
	}
	return selected, nil
}

// Requeue implements [relay.Operator].
func (s *Store) Requeue(ctx context.Context, filter relay.Filter) (int, error) {
	return s.changeParked(ctx, "requeue messages of table", filter, s.dialect.Requeue)
}

// Discard implements [relay.Operator].
func (s *Store) Discard(ctx context.Context, filter relay.Filter) (int, error) {
	return s.changeParked(ctx, "discard messages of table", filter, s.dialect.Discard)
}

// changeParked goes on in steps until nothing is left, and says how many it
// changed, also if it fails on its way.
func (s *Store) changeParked(ctx context.Context, what string, filter relay.Filter, change func(dialect.Table, dialect.Filter) dialect.Steps) (changed int, err error) {
	if filter.State != "" && filter.State != relay.StateError {
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
		ids, err := s.changeStep(ctx, what, change(s.table, selected))
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

func (s *Store) changeStep(ctx context.Context, what string, steps dialect.Steps) (ids []int64, err error) {
	err = s.write(ctx, what, func() error {
		ids, err = s.ids(ctx, steps)
		return err
	})
	return ids, err
}
