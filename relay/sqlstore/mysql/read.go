package mysql

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// BeginLanes implements [backend.Backend].
func (m *MySQL) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	first, err := m.Read(ctx, backend.Read{}, nil)
	if err != nil {
		return first, fmt.Errorf("ask which server this is: %w", err)
	}
	return first, nil
}

// Read implements [backend.Backend].
func (m *MySQL) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, m.db, nil, m.page(page), take)
	return line, err
}

// page goes along the key: one select for all positions in the order of lanes, and
// another one where that order begins anew. A union would cost a third more. On MariaDB
// it is one along the index on ids, but for keys, which are rare. So every row says which
// server this is, and where there is none, that alone is asked. The bytes are bounded by
// whoever asks for a number of rows.
func (m *MySQL) page(page backend.Read) backend.Query {
	if len(page.Positions) == 0 {
		return m.sql.Query("first line")
	}
	return m.walk(m.sql.Text("first")+", "+m.sql.Text("hot row"), page.Positions, nil, page.Limit)
}

// Candidates implements [backend.Backend].
func (m *MySQL) Candidates(ctx context.Context, positions []storage.Position, except []string, limit int, take func(storage.Candidate) (bool, error)) error {
	if len(positions) == 0 {
		return nil
	}
	columns := "t.id, t.lane, t.topic, t.message_key, coalesce(length(t.payload), length(t.payload_text), 0)"
	return backend.ReadCandidates(ctx, m.db, m.walk(columns, positions, except, limit), take)
}

// walk selects columns of the rows t at the positions. It names the index: with other
// statistics than the table's own, or none, a server would read and sort all that there
// is.
func (m *MySQL) walk(columns string, positions []storage.Position, except []string, limit int) backend.Query {
	otherThan := ""
	if len(except) > 0 {
		otherThan = " AND t.topic NOT IN " + arguments(len(except))
	}
	if m.server == mariaDB && positions[0].Key == "" {
		whole := backend.Whole(positions) // the index's entries have the lane, too
		return query("SELECT "+columns+" FROM "+m.table.Hot+" AS t FORCE INDEX (id)"+
			" WHERE "+within(whole)+" AND "+backend.WithinWhole(positions)+otherThan+" ORDER BY t.id LIMIT "+number(limit), texts(except)...)
	}
	var parts []string
	var args []any
	for len(positions) > 0 { // one part as long as the lanes ascend
		n := 1
		for n < len(positions) && positions[n].Lane > positions[n-1].Lane {
			n++
		}
		var among backend.Alternatives
		for _, p := range positions[:n] {
			where := "t.lane = " + number(p.Lane) + " AND " + within(p)
			if p.Key != "" {
				where, args = where+" AND t.message_key = ?", append(args, p.Key)
			}
			among.Add(p.Lane, where)
		}
		args = append(args, texts(except)...)
		parts = append(parts, "SELECT "+columns+" FROM "+m.table.Hot+" AS t FORCE INDEX (PRIMARY)"+
			" WHERE "+among.Condition()+otherThan+" ORDER BY t.lane, t.id LIMIT "+number(limit))
		positions = positions[n:]
	}
	if len(parts) == 1 { // in parentheses it would be copied before it is sent
		return query(parts[0], args...)
	}
	return query("("+strings.Join(parts, ")\nUNION ALL (")+")\nLIMIT "+number(limit), args...)
}

// within is the condition of a position's ids.
func within(p storage.Position) string {
	where := "t.id > " + number(p.After)
	if p.Until < 1<<63-1 {
		where += " AND t.id <= " + number(p.Until)
	}
	return where
}

// Pick implements [backend.Backend].
func (m *MySQL) Pick(ctx context.Context, rows []storage.RowID, held bool) ([]storage.Row, error) {
	if !held {
		return backend.ReadRows(ctx, m.db, m.pick(rows))
	}
	return backend.ReadRows(ctx, m.db, query("SELECT "+m.sql.Text("held row")+" FROM "+m.table.Held+" AS t FORCE INDEX (PRIMARY)"+
		"\nWHERE t.state <> 'error' AND "+among(rows)))
}

func (m *MySQL) pick(rows []storage.RowID) backend.Query {
	return query("SELECT " + m.sql.Text("hot row") + " FROM " + m.table.Hot + " AS t FORCE INDEX (PRIMARY)\nWHERE " + among(rows))
}

// among is a condition of rows t, by a list of ids for each lane: ranges of the key that
// all servers know. The rows are in the order of lanes or not.
func among(rows []storage.RowID) string {
	var order []int
	ids := map[int][]int64{}
	for _, row := range rows {
		if ids[row.Lane] == nil {
			order = append(order, row.Lane)
		}
		ids[row.Lane] = append(ids[row.Lane], row.ID)
	}
	if len(order) == 0 {
		return "FALSE"
	}
	parts := backend.Column(order, func(lane *int) string {
		return "(t.lane = " + number(*lane) + " AND t.id IN " + backend.NumberList(ids[*lane]) + ")"
	})
	return "(" + strings.Join(parts, "\n    OR ") + ")"
}

// Due implements [backend.Backend].
func (m *MySQL) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, error) {
	return backend.ReadHeld(ctx, m.db, m.sql.Fill("due", []string{
		":time", timestamp(after.At), ":id", number(after.ID), ":lanes", backend.NumberList(lanes), ":limit", number(limit),
	}), maxBytes)
}

// BlockedKeys implements [backend.Backend].
func (m *MySQL) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	return backend.BlockedKeys(ctx, m.db, m.sql.Fill("held keys", []string{":lanes", backend.NumberList(lanes), ":limit", number(limit)}))
}

// BlockedAmong implements [backend.Backend]. It has a list of keys for each lane: ranges of the
// index that all servers know. For the collation blanks at the end don't count, so keys
// that differ in nothing else are kept apart as bytes.
func (m *MySQL) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	names := map[int][]any{}
	for _, key := range keys {
		names[key.Lane] = append(names[key.Lane], key.Key)
	}
	var where []string
	var args []any
	for _, lane := range slices.Sorted(maps.Keys(names)) {
		where = append(where, "t.lane = "+number(lane)+" AND t.message_key IN "+arguments(len(names[lane])))
		args = append(args, names[lane]...)
	}
	return backend.BlockedKeys(ctx, m.db, query("SELECT t.lane, CAST(t.message_key AS BINARY) AS held_key, CAST(t.topic AS BINARY) AS held_topic, MIN(t.id)"+
		" FROM "+m.table.Held+" AS t FORCE INDEX (held_retry)"+
		"\nWHERE t.state = 'retry' AND ("+strings.Join(where, "\n    OR ")+")"+
		"\nGROUP BY t.lane, held_key, held_topic ORDER BY NULL", args...))
}
