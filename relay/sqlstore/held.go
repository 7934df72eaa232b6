package sqlstore

import (
	"context"

	"github.com/rowrelay/rowrelay/relay"
)

// HeldKeys implements [relay.LaneStore].
func (s *Store) HeldKeys(ctx context.Context, lanes []int, limit int) (keys []relay.HeldKey, err error) {
	err = s.try(ctx, "read the held keys of table", func() error {
		keys, err = s.backend.HeldKeys(ctx, lanes, limit)
		return err
	})
	return keys, err
}

// HeldAmong implements [relay.LaneStore].
func (s *Store) HeldAmong(ctx context.Context, among []relay.LaneKey) (keys []relay.HeldKey, err error) {
	if len(among) == 0 {
		return nil, nil
	}
	err = s.try(ctx, "look for held keys of table", func() error {
		keys, err = s.backend.HeldAmong(ctx, among)
		return err
	})
	return keys, err
}

// Due implements [relay.LaneStore]. The row that crosses maxBytes is still
// returned.
func (s *Store) Due(ctx context.Context, lanes []int, after relay.DueCursor, limit, maxBytes int) (rows []relay.Row, next relay.DueCursor, err error) {
	err = s.try(ctx, "read the due rows of table", func() error {
		rows, err = s.backend.Due(ctx, lanes, after, limit, maxBytes)
		return err
	})
	if err != nil || len(rows) == 0 {
		return nil, after, err
	}
	last := rows[len(rows)-1]
	return rows, relay.DueCursor{At: last.Message.AvailableAt, ID: last.ID}, nil
}
