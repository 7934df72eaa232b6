package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Replays implements [storage.Replayer].
func (s *Store) Replays(ctx context.Context) (replays []storage.Replay, err error) {
	err = s.do(ctx, OpReplay, func() error {
		for _, name := range slices.Sorted(maps.Keys(s.db.replays)) {
			replays = append(replays, s.db.replays[name])
		}
		return nil
	})
	return replays, err
}

// StoreReplay implements [storage.Replayer].
func (s *Store) StoreReplay(ctx context.Context, was *storage.Replay, is storage.Replay) (storage.Replay, error) {
	err := s.do(ctx, OpReplay, func() error {
		stored, there := s.db.replays[is.Name]
		if there != (was != nil) || was != nil && !same(stored, *was) {
			return fmt.Errorf("write the replay %s: %w", is.Name, storage.ErrReplayChanged)
		}
		if was == nil {
			for _, r := range s.db.done {
				is.UntilID = max(is.UntilID, r.row.ID)
			}
		}
		s.db.replays[is.Name] = is
		return nil
	})
	return is, err
}

func same(a, b storage.Replay) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// Replay implements [storage.Replayer].
func (s *Store) Replay(ctx context.Context, was storage.Replay, limit int) (is storage.Replay, copies []storage.RowID, err error) {
	is = was
	err = s.do(ctx, OpReplay, func() error {
		if !same(s.db.replays[was.Name], was) {
			return fmt.Errorf("write the replay %s: %w", was.Name, storage.ErrReplayChanged)
		}
		var written []*record
		is.Finished = true
		for _, r := range s.db.deliveredFor(was) {
			if len(written) >= limit && r.row.ID > is.AfterID {
				is.Finished = false
				break
			}
			is.AfterID = r.row.ID
			if n := len(written); was.To != "" && n > 0 && written[n-1].row.ID == r.row.ID && written[n-1].row.Message.ID == r.row.Message.ID {
				continue // another row of the same message has been copied
			}
			c := r.copied(&storage.Copy{MessageID: r.row.Message.ID, Topic: r.row.Message.Topic, Sinks: cmp.Or(was.To, r.row.Sinks)}, s.db.now())
			c.row.Malformed = r.row.Malformed
			c.row.Message.Headers = maps.Clone(r.row.Message.Headers)
			if c.row.Message.Headers == nil {
				c.row.Message.Headers = map[string]string{}
			}
			c.row.Message.Headers[storage.ReplayedHeader] = was.Name
			written = append(written, c)
		}
		s.db.write(written)
		for _, r := range written {
			copies = append(copies, storage.RowID{Lane: r.row.Lane, ID: r.row.ID})
		}
		is.Written += int64(len(written))
		s.db.replays[is.Name] = is
		return nil
	})
	if err != nil {
		return was, nil, err
	}
	return is, copies, nil
}

// deliveredFor returns the delivered rows that a replay still has to copy, in the order
// of ids.
func (db *DB) deliveredFor(replay storage.Replay) (rows []*record) {
	filter := storage.Filter{IDs: replay.IDs, Topic: replay.Topic, Key: replay.Key, Sink: replay.Sink, AfterID: replay.AfterID}
	for _, r := range db.done {
		if r.matches(filter, db.now()) && r.row.ID <= replay.UntilID &&
			!r.finishedAt.Before(replay.Since) && (replay.Until.IsZero() || r.finishedAt.Before(replay.Until)) {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, byID)
	return rows
}

// CountPending implements [storage.Replayer].
func (s *Store) CountPending(ctx context.Context, rows []storage.RowID) (count int, err error) {
	err = s.do(ctx, OpReplay, func() error {
		for _, row := range rows {
			if _, there := s.db.find(row.Lane, row.ID); there {
				count++
			}
		}
		return nil
	})
	return count, err
}
