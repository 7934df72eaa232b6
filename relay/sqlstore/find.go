package sqlstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Looking for messages by their ids, where a listing is bounded (LookThrough). Pending and delivered rows have no index by it, as it would
// cost each message. But most ids begin with a time: those of a Writer, which are UUIDs of version
// 7, and those that MySQL makes, of version 1. Rows' ids are given out in the order of time, or
// nearly so. So the rows' ids of that time are found by halving, and the message among these
// rows. What isn't found so, as its id has no time, or was made long before the row, is looked for
// among all rows. A replay's copy has its original's id and was written later: it is found by a
// listing without a bound.

// narrowed is how many messages are looked for one after the other.
const narrowed = 10

// around are how far from the time of its id a message is looked for.
var around = []time.Duration{2 * time.Second, time.Minute, 30 * time.Minute}

// find lists the messages that a filter selects by their ids.
func (s *Store) find(ctx context.Context, filter backend.Filter) (found []storage.Info, err error) {
	if len(filter.MessageIDs) > narrowed || s.traits.Queries.WrittenFrom.SQL == "" {
		return s.backend.List(ctx, filter)
	}
	var left []string
	for _, id := range slices.Compact(slices.Sorted(slices.Values(filter.MessageIDs))) {
		infos, err := s.findOne(ctx, filter, id)
		if err != nil {
			return nil, err
		}
		if len(infos) == 0 {
			left = append(left, id)
		}
		found = append(found, infos...)
	}
	if filter.MessageIDs = left; len(left)+len(filter.RowIDs) > 0 {
		infos, err := s.backend.List(ctx, filter)
		if err != nil {
			return nil, err
		}
		found = append(found, infos...)
	}
	// A row that was named by its own id, too, comes twice.
	order := func(a, b storage.Info) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.Message.ID, b.Message.ID), strings.Compare(string(a.State), string(b.State)), strings.Compare(a.Sinks, b.Sinks))
	}
	slices.SortFunc(found, order)
	found = slices.CompactFunc(found, func(a, b storage.Info) bool { return order(a, b) == 0 })
	return found[:min(len(found), filter.Limit)], nil
}

// findOne lists the rows of a message that were written around the time of its id.
func (s *Store) findOne(ctx context.Context, filter backend.Filter, id string) (found []storage.Info, err error) {
	made, known := timeOf(id)
	if !known {
		return nil, nil
	}
	filter.RowIDs, filter.MessageIDs = nil, []string{id}
	asked := filter.AfterID
	for _, apart := range around {
		last, _, err := s.writtenAt(ctx, made.Add(-apart))
		if err != nil {
			return nil, err
		}
		_, first, err := s.writtenAt(ctx, made.Add(apart))
		if err != nil {
			return nil, err
		}
		filter.AfterID, filter.UntilID = max(asked, last), first
		if found, err = s.backend.List(ctx, filter); err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

// writtenAt returns the ids of two rows, hot or done: the last one that was written before the time, as
// far as halving meets it, and the first one that wasn't.
func (s *Store) writtenAt(ctx context.Context, at time.Time) (last, first int64, err error) {
	if err := backend.One(ctx, s.db, s.traits.Queries.LastID, &first); err != nil {
		return 0, 0, err
	}
	query := backend.Query{SQL: s.traits.Queries.WrittenFrom.SQL, Args: make([]any, len(s.traits.Queries.WrittenFrom.Args))}
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

// timeOf is when a UUID of version 7 or 1 was made.
func timeOf(id string) (time.Time, bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) != 16 {
		return time.Time{}, false
	}
	switch raw[6] >> 4 {
	case 7:
		return time.UnixMilli(int64(binary.BigEndian.Uint64(raw[:8]) >> 16)), true
	case 1: // in tenths of a microsecond since the Gregorian calendar began
		ticks := int64(binary.BigEndian.Uint16(raw[6:8])&0xfff)<<48 | int64(binary.BigEndian.Uint16(raw[4:6]))<<32 | int64(binary.BigEndian.Uint32(raw[:4]))
		return time.Date(1582, 10, 15, 0, 0, 0, 0, time.UTC).AddDate(0, 0, int(ticks/(24*36_000_000_000))).Add(time.Duration(ticks%(24*36_000_000_000)) * 100), true
	}
	return time.Time{}, false
}
