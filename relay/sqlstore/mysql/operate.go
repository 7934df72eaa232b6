package mysql

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Status implements [backend.Operating].
func (m *MySQL) Status(ctx context.Context) (relay.Status, error) {
	return backend.ReadStatus(ctx, m.db, backend.StatusQueries{
		Mode: m.sql.Query("claim mode"), Counts: m.sql.Fill("counts", []string{":limit", number(backend.CountedDone)}), Oldest: m.sql.Query("oldest"),
		Topics: m.sql.Fill("topics", []string{":limit", number(backend.SampledTopics)}), Relays: m.sql.Query("list relays"), Leased: m.sql.Query("lanes leased"),
	})
}

// List implements [backend.Operating]. It asks each table by itself, in the order of one
// of its indexes and with the limit: the view would be made as a whole first.
func (m *MySQL) List(ctx context.Context, filter backend.Filter) ([]relay.Info, error) {
	list := &text{}
	part := func(from, state, flags, more, where string) {
		if list.sql.Len() > 0 {
			list.add("\nUNION ALL ")
		}
		list.add("(SELECT " + m.sql.Text("row") + ",\n    " + m.sql.Text("has payload") + " + " + flags + ", " + state + " AS state, coalesce(t.last_error, ''), " + more +
			"\nFROM " + from + " WHERE " + where)
		conditions(list, filter)
		if filter.State != "" {
			list.add(" AND "+state+" = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin", string(filter.State))
		}
		list.add("\nORDER BY t.id LIMIT " + number(filter.Limit) + ")")
	}
	later := m.sql.Text("later")
	part(m.table.Hot()+" AS t FORCE INDEX (id)", m.sql.Text("hot state"), later, "'', coalesce(t.claimed_by, ''), NULL", "TRUE")
	for _, state := range []string{"scheduled", "retry", "error"} {
		part(m.table.Held()+" AS t FORCE INDEX (held_id)", m.sql.Text("held state"), later+" + 4 * (t.state = 'retry')", "'', '', NULL", "t.state = '"+state+"'")
	}
	part(m.table.Done()+" AS t FORCE INDEX (PRIMARY)", "'done'", later, "coalesce(t.receipt, ''), '', CAST(t.finished_at AS CHAR)", "TRUE")
	return backend.ReadInfos(ctx, m.db, list.add("\nORDER BY id LIMIT "+number(filter.Limit)).query())
}

// conditions leave out what is empty. Texts compare as bytes.
func conditions(to *text, filter backend.Filter) {
	to.add(" AND t.id > " + number(filter.AfterID))
	if filter.ByID {
		to.add(" AND (t.id IN "+backend.NumberList(filter.RowIDs)+" OR t.message_id IN "+arguments(len(filter.MessageIDs))+")", texts(filter.MessageIDs)...)
	}
	if filter.Topic != "" {
		to.add(" AND CAST(t.topic AS BINARY) = ?", filter.Topic)
	}
	if filter.Key != "" {
		to.add(" AND CAST(t.message_key AS BINARY) = ?", filter.Key)
	}
	if !filter.Since.IsZero() {
		to.add(" AND t.created_at >= ?", timestamp(filter.Since))
	}
	if filter.Error != "" {
		to.add(" AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0", filter.Error)
	}
}

// Requeue implements [backend.Operating].
func (m *MySQL) Requeue(ctx context.Context, filter backend.Filter) ([]int64, error) {
	return m.parked(ctx, filter, func(ids []int64) []backend.Query {
		update := (&text{}).add("UPDATE " + m.table.Held() + " AS t FORCE INDEX (held_id)" +
			" SET t.state = 'scheduled', t.attempts = 0, t.crashes = 0, t.available_at = utc_timestamp(6)" +
			" WHERE t.state = 'error' AND t.id IN " + backend.NumberList(ids))
		conditions(update, filter)
		return []backend.Query{update.query()}
	})
}

// Discard implements [backend.Operating].
func (m *MySQL) Discard(ctx context.Context, filter backend.Filter) ([]int64, error) {
	return m.parked(ctx, filter, func(ids []int64) []backend.Query {
		return m.deleteByID(m.table.Held(), "held_id", ids, func(where *text) {
			conditions(where.add("t.state = 'error'"), filter)
		})
	})
}

// parked locks the parked rows that a filter means, and changes them. The change asks for
// the filter once more: an id may have several rows.
func (m *MySQL) parked(ctx context.Context, filter backend.Filter, change func(ids []int64) []backend.Query) (ids []int64, err error) {
	parked := (&text{}).add("SELECT t.id FROM " + m.table.Held() + " AS t FORCE INDEX (held_id) WHERE t.state = 'error'")
	conditions(parked, filter)
	parked.add(" ORDER BY t.id LIMIT " + number(filter.Limit) + " FOR UPDATE")
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		if ids, err = backend.IDs(ctx, tx, parked.query()); err != nil || len(ids) == 0 {
			return err
		}
		_, err := backend.Exec(ctx, tx, change(ids)...)
		return err
	})
	return ids, err
}
