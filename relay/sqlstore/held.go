package sqlstore

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// HeldKeys implements [relay.LaneStore].
func (s *Store) HeldKeys(ctx context.Context, lanes []int, limit int) (keys []relay.HeldKey, err error) {
	err = s.try(ctx, "read the held keys of table", func() error {
		keys = nil
		var key relay.HeldKey
		return all(ctx, s.db, s.dialect.HeldKeys(s.table, lanes, limit), func() { keys = append(keys, key) },
			&key.Lane, &key.Key, &key.Topic, &key.ID)
	})
	return keys, err
}

// HeldAmong implements [relay.LaneStore].
func (s *Store) HeldAmong(ctx context.Context, among []relay.LaneKey) (keys []relay.HeldKey, err error) {
	if len(among) == 0 {
		return nil, nil
	}
	lanes, names := make([]int, len(among)), make([]string, len(among))
	for i, key := range among {
		lanes[i], names[i] = key.Lane, key.Key
	}
	query := s.dialect.HeldAmong(s.table, lanes, names)
	err = s.try(ctx, "look for held keys of table", func() error {
		keys = nil
		var key relay.HeldKey
		return all(ctx, s.db, query, func() { keys = append(keys, key) }, &key.Lane, &key.Key, &key.Topic, &key.ID)
	})
	return keys, err
}

// Due implements [relay.LaneStore]. The row that crosses maxBytes is still
// returned.
func (s *Store) Due(ctx context.Context, lanes []int, after relay.DueCursor, limit, maxBytes int) (rows []relay.Row, next relay.DueCursor, err error) {
	query := s.dialect.Due(s.table, lanes, dialect.After{At: after.At, ID: after.ID}, limit, maxBytes)
	err = s.try(ctx, "read the due rows of table", func() error {
		rows = nil
		bytes := 0
		scan := newRowScan()
		return each(ctx, s.db, query, func(result *sql.Rows) (bool, error) {
			if err := scan.scan(result); err != nil {
				return false, err
			}
			scan.row.Held = true
			rows = append(rows, scan.row)
			bytes += len(scan.row.Message.Payload)
			return bytes < maxBytes, nil
		})
	})
	if err != nil {
		return nil, after, err
	}
	next = after
	if len(rows) > 0 {
		last := rows[len(rows)-1]
		next = relay.DueCursor{At: last.Message.AvailableAt, ID: last.ID}
	}
	return rows, next, nil
}
