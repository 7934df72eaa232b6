package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Claim implements [backend.Backend].
func (m *MySQL) Claim(ctx context.Context, request storage.ClaimRequest) (claimed []storage.Row, err error) {
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		claimed, err = backend.ReadFree(ctx, tx, m.free(request), request.MaxBytes, m.pick)
		if err != nil || len(claimed) == 0 {
			return err
		}
		ids := backend.NumberList(backend.Column(claimed, func(row *storage.Row) int64 { return row.ID }))
		_, err := backend.Exec(ctx, tx, m.sql.Fill("claim", []string{":ttl", microseconds(request.TTL), ":ids", ids}, request.Relay, request.Token))
		return err
	})
	return claimed, err
}

// free selects and locks the free rows that are to be claimed. It names the index that
// has the order, for with a sort all that is free would be locked. With a bound it leaves
// out payloads that are twice as large as the average row may be, so that what it selects
// is never much more than what is claimed; what is claimed of these is selected again.
func (m *MySQL) free(request storage.ClaimRequest) backend.Query {
	index, order := "claim_id", "t.id"
	switch request.Pick {
	case storage.Newest:
		order = "t.id DESC"
	case storage.Priority:
		index, order = "claim_priority", "t.urgency, t.id"
	}
	columns := m.sql.Text("hot row")
	if request.MaxBytes > 0 {
		size, payload := m.sql.Text("size"), m.sql.Text("payload")
		large := size + " > " + number(2*request.MaxBytes/max(1, request.Limit))
		columns = strings.Replace(columns, payload, "CASE WHEN "+large+" THEN NULL ELSE "+payload+" END", 1) +
			" + CASE WHEN " + large + " THEN " + number(backend.SizeOne) + " * " + size + " ELSE 0 END"
	}
	topics := ""
	if len(request.Topics) > 0 {
		topics += " AND CAST(t.topic AS BINARY) IN " + arguments(len(request.Topics))
	}
	if len(request.Except) > 0 {
		topics += " AND CAST(t.topic AS BINARY) NOT IN " + arguments(len(request.Except))
	}
	return query("SELECT "+columns+"\nFROM "+m.table.Hot+" AS t FORCE INDEX ("+index+") WHERE "+m.sql.Text("if by rows")+"t.claimed_until IS NULL"+topics+
		"\nORDER BY "+order+" LIMIT "+number(request.Limit)+m.sql.Text("skip"), append(texts(request.Topics), texts(request.Except)...)...)
}

// Extend implements [backend.Backend].
func (m *MySQL) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
	asked := []string{":ids", backend.NumberList(ids)}
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		locked, err := backend.IDs(ctx, tx, m.sql.Fill("lock still claimed", asked, token))
		if err != nil {
			return err
		}
		if len(locked) > 0 {
			if _, err := backend.Exec(ctx, tx, m.sql.Fill("extend", []string{":ttl", microseconds(ttl), ":ids", backend.NumberList(locked)})); err != nil {
				return err
			}
		}
		others, err := backend.IDs(ctx, tx, m.sql.Fill("still claimed", asked, token))
		still = append(locked, others...)
		return err
	})
	return still, err
}

// Reclaim implements [backend.Backend].
func (m *MySQL) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		ids, err := backend.IDs(ctx, tx, m.sql.Fill("expired claims", []string{":limit", number(limit)}))
		if err != nil || len(ids) == 0 {
			return err
		}
		freed = len(ids)
		_, err = backend.Exec(ctx, tx, m.sql.Fill("free expired", []string{":ids", backend.NumberList(ids)}))
		return err
	})
	if err != nil {
		return 0, err
	}
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		places, err := backend.IDs(ctx, tx, m.sql.Fill("due places", []string{":limit", number(limit)}))
		if err != nil {
			return err
		}
		freed += len(places)
		return m.bringBack(ctx, tx, places)
	})
	return freed, err
}

// bringBack inserts the rows, and deletes those that came: an id may have others.
func (m *MySQL) bringBack(ctx context.Context, tx *sql.Tx, places []int64) error {
	rows := backend.Column(places, func(place *int64) storage.RowID { return storage.RowID{Lane: int(*place % 64), ID: *place / 64} })
	slices.SortFunc(rows, func(a, b storage.RowID) int { return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.ID, b.ID)) })
	for part := range slices.Chunk(rows, mostGiven) {
		keys := &given{server: m.server, settlements: backend.Column(part, func(row *storage.RowID) storage.Settlement { return storage.Settlement{Lane: row.Lane, ID: row.ID} })}
		remove := join("DELETE t FROM ", keys.table(), m.table.Held+" AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id"+
			"\nSTRAIGHT_JOIN "+m.table.Hot+" AS h FORCE INDEX (PRIMARY) ON h.lane = t.lane AND h.id = t.id AND h.message_id = t.message_id")
		if _, err := backend.Exec(ctx, tx, m.sql.Fill("bring back", []string{":rows", among(part)}), remove.query()); err != nil {
			return err
		}
	}
	return nil
}
