package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Replays implements [storage.Replayer].
func (s *Store) Replays(ctx context.Context) ([]storage.Replay, error) {
	return try(ctx, s, "read the replays of table", func() ([]storage.Replay, error) {
		return backend.ReadReplays(ctx, s.db, s.capabilities.Statements.Query("replays"))
	})
}

// LastDelivered implements [storage.Follower].
func (s *Store) LastDelivered(ctx context.Context, filter storage.Filter, since time.Time) ([]storage.Info, error) {
	selected := backend.Filter{DoneSince: since, Filter: storage.Filter{Topic: filter.Topic, Key: filter.Key, Sink: filter.Sink, Limit: cmp.Or(max(0, filter.Limit), listed)}}
	return try(ctx, s, "find the last delivered messages of table", func() ([]storage.Info, error) { return s.backend.LastDelivered(ctx, selected) })
}

// StoreReplay implements [storage.Replayer].
func (s *Store) StoreReplay(ctx context.Context, was *storage.Replay, is storage.Replay) (storage.Replay, error) {
	if _, err := selection(storage.Filter{IDs: is.IDs}); err != nil {
		return is, err
	}
	if was == nil {
		last, err := try(ctx, s, "read the last delivered message of table", func() (last int64, _ error) {
			return last, backend.One(ctx, s.db, s.capabilities.Statements.Query("last delivered"), &last)
		})
		if err != nil {
			return is, err
		}
		is.UntilID = last
	}
	_, err := s.changeReplay(ctx, was, &is, nil)
	return is, err
}

// Replay implements [storage.Replayer]. It first finds the messages, which may take a long time.
// Then, in a short transaction, it copies the messages that still exist.
func (s *Store) Replay(ctx context.Context, was storage.Replay, limit int) (is storage.Replay, copies []storage.RowID, err error) {
	is = was
	filter, err := selection(storage.Filter{IDs: was.IDs, Topic: was.Topic, Key: was.Key, Sink: was.Sink, AfterID: was.AfterID})
	if err != nil {
		return was, nil, err
	}
	filter.DoneSince, filter.DoneUntil = was.Since, was.Until
	rows, more, err := s.delivered(ctx, filter, was.UntilID, max(1, limit))
	if err != nil {
		return was, nil, err
	}
	settlements := make([]storage.Settlement, 0, len(rows))
	for i, row := range rows {
		is.AfterID = row.ID
		sameMessage := func(other backend.DeliveredRow) bool { return other.ID == row.ID && other.MessageID == row.MessageID }
		if was.To != "" && slices.ContainsFunc(rows[:i], sameMessage) {
			continue // this is another row of the message, for other sinks, and the new sink gets only one copy
		}
		settlements = append(settlements, storage.Settlement{
			ID: row.ID, Lane: row.Lane, MessageID: row.MessageID, Sinks: row.Sinks,
			Deferred:   true, // makes the statements compare Sinks, in which the done rows of a message differ
			DeadLetter: &storage.Copy{MessageID: row.MessageID, Topic: row.Topic, Sinks: cmp.Or(was.To, row.Sinks), Headers: withHeader(row.Headers, storage.ReplayedHeader, was.Name)},
		})
	}
	is.Finished = !more
	copies, err = s.changeReplay(ctx, &was, &is, settlements)
	if errors.Is(err, storage.ErrInvalid) {
		if limit > 1 { // halve the limit to find the message that the database rejects
			return s.Replay(ctx, was, limit/2)
		}
		is.Refused += int64(len(settlements))
		copies, err = s.changeReplay(ctx, &was, &is, nil)
	}
	if err != nil {
		return was, nil, err
	}
	return is, copies, nil
}

// delivered returns the next delivered rows, and whether more exist. Several rows may have the same id, for
// example because it was assigned again. The next call starts above the last returned id, so delivered returns all rows
// with this id.
func (s *Store) delivered(ctx context.Context, filter backend.Filter, untilID int64, limit int) (rows []backend.DeliveredRow, more bool, err error) {
	for ; ; limit *= 2 {
		filter.Limit = limit + 1
		rows, err = try(ctx, s, "find delivered messages of table", func() ([]backend.DeliveredRow, error) { return s.backend.Delivered(ctx, filter, untilID) })
		if err != nil || len(rows) <= limit {
			return rows, false, err
		}
		for end := limit; end > 0; end-- {
			if rows[end-1].ID != rows[end].ID {
				return rows[:end], true, nil
			}
		}
	}
}

// changeReplay writes the copies, stores the replay, and adds the number of written copies to
// is.Written. This number is lower than len(copies) if rows were purged after they had been found.
func (s *Store) changeReplay(ctx context.Context, was, is *storage.Replay, copies []storage.Settlement) ([]storage.RowID, error) {
	asText := func(replay storage.Replay) string {
		text, _ := json.Marshal(replay) // can't fail: a Replay has only strings, numbers and times
		return string(text)
	}
	change := backend.ReplayChange{Name: is.Name, Copies: copies}
	if was != nil {
		change.Was = asText(*was)
	}
	next := *is
	change.Is = func(written int) string {
		next.Written = is.Written + int64(written)
		return asText(next)
	}
	rows, err := write(ctx, s, "write the replay "+is.Name+" of table", func() ([]storage.RowID, uint64, error) {
		rows, err := s.backend.ChangeReplay(ctx, change)
		return rows, 0, err
	})
	if err == nil {
		*is = next
	}
	return rows, err
}

// CountPending implements [storage.Replayer].
func (s *Store) CountPending(ctx context.Context, rows []storage.RowID) (int, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	return try(ctx, s, "count pending messages of table", func() (count int, err error) {
		err = backend.One(ctx, s.db, backend.PendingAmong(s.capabilities.Pending, rows), &count)
		return count, err
	})
}

// withHeader returns the JSON of a message's headers with one more header. If it can't read the
// headers, it returns them unchanged, and a relay will park the message.
func withHeader(headers, name, value string) string {
	all := map[string]json.RawMessage{} // a RawMessage keeps all digits of a number
	if headers != "" {
		if err := json.Unmarshal([]byte(headers), &all); err != nil || all == nil {
			return headers
		}
	}
	quoted, _ := json.Marshal(value) // can't fail: the value is a string
	all[name] = quoted
	text, err := json.Marshal(all)
	if err != nil {
		return headers
	}
	return string(text)
}
