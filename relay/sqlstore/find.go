package sqlstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// This file finds messages by their ids. The tables outbox and outbox_done have no index on message ids, because such an index would make
// each write more expensive. But most message ids contain the time when they were made: UUIDs of version 7, which a Writer makes, and of
// version 1, which MySQL's function uuid makes. Row ids ascend with time, with few exceptions. So a binary search finds the range of row
// ids that were assigned around the time in a message's id. The message's row is in this range.
//
// A message may have several rows, if a replay copied it or a producer wrote it twice. The later rows have higher ids than the first one.
// So Find also searches the later rows, in short steps, up to the end of the table or a time limit. If a message's id contains no time,
// Find searches all rows. If the id was made long before the row was written, Find searches the rows written since the id was made;
// without a time limit, it searches all rows.

// narrowed is the maximum number of message ids for which Find uses the times in the ids. For more ids it searches all rows.
const narrowed = 10

// Find searches the rows that were written around the time in a message's id: first within two seconds before or after this
// time, and then, as long as it finds no row, within a minute and then within half an hour.
var around = []time.Duration{2 * time.Second, time.Minute, 30 * time.Minute}

// The first step examines firstStep ids. As long as steps take less than stepTime, later steps examine more ids, at most mostStep. The
// limit is needed because PostgreSQL reads the whole table instead of its index if a step examines a large part of the ids: a step of a
// million ids in a table of three million delivered rows would take a second.
const (
	firstStep = 5_000
	mostStep  = 100_000
	stepTime  = 50 * time.Millisecond
)

// Find implements [storage.Operator].
func (s *Store) Find(ctx context.Context, filter storage.Filter, patience time.Duration) (found storage.Found, err error) {
	selected, err := selection(filter)
	if err != nil {
		return found, err
	}
	return try(ctx, s, "find messages of table", func() (storage.Found, error) {
		found, err := s.find(ctx, selected, patience)
		if err == nil {
			err = s.addLogs(ctx, found.Infos)
		}
		return found, err
	})
}

func (s *Store) find(ctx context.Context, filter backend.Filter, patience time.Duration) (found storage.Found, err error) {
	var deadline time.Time
	if patience > 0 {
		deadline = time.Now().Add(patience)
	}
	if len(filter.MessageIDs) == 0 || s.capabilities.Queries.WrittenFrom.SQL == "" {
		found.Infos, err = s.backend.List(ctx, filter)
		return found, err
	}
	if err := backend.One(ctx, s.db, s.capabilities.Queries.LastID, &found.Last); err != nil {
		return found, err
	}
	found.Until = found.Last
	if len(filter.MessageIDs) <= narrowed {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(filter.MessageIDs))) {
			infos, from, err := s.findByTime(ctx, filter, id, found.Last, deadline)
			if err != nil {
				return found, err
			}
			found.Infos, found.Until = append(found.Infos, infos...), min(found.Until, from)
		}
	} else {
		found.Until = filter.AfterID
	}
	if rows := filter; len(filter.RowIDs) > 0 {
		rows.MessageIDs = nil
		infos, err := s.backend.List(ctx, rows)
		if err != nil {
			return found, err
		}
		found.Infos = append(found.Infos, infos...)
	}
	filter.RowIDs = nil
	// Walk over the later rows if nothing was found or time remains. Also walk if found.Until hasn't advanced because an id contains
	// no time; otherwise the next call would begin at the same row again.
	if len(found.Infos) == 0 || found.Until <= filter.AfterID || deadline.IsZero() || time.Now().Before(deadline) {
		filter.AfterID = found.Until
		infos, until, err := s.walk(ctx, filter, found.Last, deadline)
		if err != nil {
			return found, err
		}
		found.Infos, found.Until = append(found.Infos, infos...), until
	}
	// The walk may return rows that the searches by time or by row id have already found.
	order := func(a, b storage.Info) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.Message.ID, b.Message.ID), strings.Compare(string(a.State), string(b.State)), strings.Compare(a.Sinks, b.Sinks))
	}
	slices.SortFunc(found.Infos, order)
	found.Infos = slices.CompactFunc(found.Infos, func(a, b storage.Info) bool { return order(a, b) == 0 })
	if len(found.Infos) >= filter.Limit { // the limit may have cut matches off: the caller finds them by searching above the last id
		found.Infos = found.Infos[:filter.Limit]
		found.Until = min(found.Until, found.Infos[filter.Limit-1].ID)
	}
	return found, err
}

// findByTime returns the rows of a message that were written around the time in its id, and the id after which the caller
// continues the search. If findByTime finds no row, the caller continues at the beginning of the widest time range that was
// searched, because no row is written before its id is made. Without a deadline the caller continues at the filter's AfterID.
func (s *Store) findByTime(ctx context.Context, filter backend.Filter, id string, highest int64, deadline time.Time) (found []storage.Info, from int64, err error) {
	made, known := timeOf(id)
	if !known {
		return nil, filter.AfterID, nil
	}
	filter.RowIDs, filter.MessageIDs = nil, []string{id}
	asked := filter.AfterID
	for _, apart := range around {
		last, _, err := s.writtenAt(ctx, made.Add(-apart), highest)
		if err != nil {
			return nil, 0, err
		}
		_, first, err := s.writtenAt(ctx, made.Add(apart), highest)
		if err != nil {
			return nil, 0, err
		}
		filter.AfterID = max(asked, last)
		if found, from, err = s.walk(ctx, filter, first, deadline); err != nil || len(found) > 0 {
			return found, from, err
		}
	}
	if deadline.IsZero() {
		return nil, asked, nil
	}
	return nil, filter.AfterID, nil
}

// walk lists, in steps, the messages with ids above the filter's AfterID, up to the id `until`. It returns the id up to which it has
// examined the rows. This id is lower than `until` if walk has found filter.Limit messages or if the deadline has passed. It makes at least
// one step.
func (s *Store) walk(ctx context.Context, filter backend.Filter, until int64, deadline time.Time) (found []storage.Info, looked int64, err error) {
	step := int64(firstStep)
	looked = filter.AfterID
	for steps := 0; looked < until && len(found) < filter.Limit; steps++ {
		began := time.Now()
		if steps > 0 && !deadline.IsZero() && began.After(deadline) {
			break
		}
		// Each step begins at the next row, because the ids may have large gaps.
		next, err := s.backend.List(ctx, backend.Filter{Filter: storage.Filter{AfterID: looked, Limit: 1, MaxBytes: storage.ListBytes, NoPayloads: true}})
		if err != nil {
			return nil, 0, err
		}
		if len(next) == 0 || next[0].ID > until {
			return found, until, nil
		}
		filter.AfterID = next[0].ID - 1
		filter.UntilID = min(filter.AfterID+step, until)
		infos, err := s.backend.List(ctx, filter)
		if err != nil {
			return nil, 0, err
		}
		found, looked = append(found, infos...), lookedUntil(filter, infos)
		if took := time.Since(began); took < stepTime {
			step = min(2*step, mostStep)
		} else if took > 2*stepTime {
			step = max(step/2, firstStep)
		}
	}
	return found, looked, nil
}

// lookedUntil returns the id up to which a step has examined the rows. This is the last row's id if the list reached MaxBytes.
func lookedUntil(filter backend.Filter, found []storage.Info) int64 {
	bytes := 0
	for i := range found {
		bytes += len(found[i].Message.Payload)
	}
	if bytes >= filter.MaxBytes {
		return found[len(found)-1].ID
	}
	return filter.UntilID
}

// writtenAt finds two rows of the tables outbox and outbox_done by a binary search of the ids. Its first result is the
// id of the last row that was written before the given time, or 0 if it finds none. Its second result is the id of the
// first row that was written at that time or later, or the argument `highest` if it finds none.
func (s *Store) writtenAt(ctx context.Context, at time.Time, highest int64) (last, first int64, err error) {
	first = highest
	query := backend.Query{SQL: s.capabilities.Queries.WrittenFrom.SQL, Args: make([]any, len(s.capabilities.Queries.WrittenFrom.Args))}
	for low, high := int64(0), first; low < high; {
		middle := low + (high-low)/2
		for i := range query.Args {
			query.Args[i] = middle
		}
		id, written := int64(-1), int64(0)
		if err := backend.One(ctx, s.db, query, &id, &written); err != nil {
			return 0, 0, err
		}
		switch {
		case id >= 0 && written < at.UnixMilli():
			last, low = id, id+1
		case id >= 0:
			first, high = min(first, id), middle
		default:
			high = middle
		}
	}
	return last, first, nil
}

// timeOf returns the time at which a UUID of version 7 or 1 was made.
func timeOf(id string) (time.Time, bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) != 16 {
		return time.Time{}, false
	}
	switch raw[6] >> 4 {
	case 7:
		return time.UnixMilli(int64(binary.BigEndian.Uint64(raw[:8]) >> 16)), true
	case 1: // the time is in tenths of a microsecond since the Gregorian calendar began
		ticks := int64(binary.BigEndian.Uint16(raw[6:8])&0xfff)<<48 | int64(binary.BigEndian.Uint16(raw[4:6]))<<32 | int64(binary.BigEndian.Uint32(raw[:4]))
		return time.Date(1582, 10, 15, 0, 0, 0, 0, time.UTC).AddDate(0, 0, int(ticks/(24*36_000_000_000))).Add(time.Duration(ticks%(24*36_000_000_000)) * 100), true
	}
	return time.Time{}, false
}
