package oracle

import (
	"context"
	"database/sql"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// The columns of a listing's row of the view.
const listedRow = plain + ",\n    " + hasPayload + " + " + later + " + " + retrying +
	", t.state, t.last_error, t.receipt, t.claimed_by, TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')"

// List implements [backend.Operating].
func (d *Oracle) List(ctx context.Context, filter backend.Filter) ([]relay.Info, error) {
	var a args
	rows := "SELECT t.* FROM " + d.table.Messages + " t WHERE " + a.filter(filter, true)
	return backend.ReadInfos(ctx, d.db, a.query(
		asBytes,
		"SELECT "+listedRow,
		ordered(rows, "t.id", " WHERE ROWNUM <= "+a.int(filter.Limit))))
}

// filter leaves out what is empty.
func (a *args) filter(filter backend.Filter, states bool) string {
	where := []string{"t.id > " + a.add(filter.AfterID)}
	add := func(wanted bool, condition func() string) {
		if wanted {
			where = append(where, condition())
		}
	}
	add(filter.ByID, func() string {
		return "(t.id IN " + a.ids(filter.RowIDs) + " OR " + bytes("LOWER(t.message_id)") + " IN " + a.texts(filter.MessageIDs) + ")"
	})
	add(filter.Topic != "", func() string { return same("t.topic", a.add(filter.Topic)) })
	add(filter.Key != "", func() string { return same("t.message_key", a.add(filter.Key)) })
	add(states && filter.State != "", func() string { return "t.state = " + a.add(string(filter.State)) })
	add(!filter.Since.IsZero(), func() string { return "t.created_at >= " + a.timestamp(filter.Since) })
	add(filter.Error != "", func() string { return "INSTR(t.last_error, " + a.add(filter.Error) + ") > 0" })
	return strings.Join(where, " AND ")
}

// ChangeParked implements [backend.Backend]. It asks for the filter twice, as an id may have
// several rows. It locks the rows, which are counted below: where rows are locked there may
// be no limit beside.
func (d *Oracle) ChangeParked(ctx context.Context, filter backend.Filter, discard bool) (ids []int64, err error) {
	change := "UPDATE " + d.table.Held + " t SET state = 'scheduled', attempts = 0, crashes = 0, available_at = " + now
	if discard {
		change = "DELETE FROM " + d.table.Held + " t"
	}
	var a args
	parked := a.query(
		"SELECT id FROM "+d.table.Held+" WHERE state = 'error' AND (id, message_id) IN (SELECT id, message_id FROM (",
		"    SELECT t.id, t.message_id FROM "+d.table.Held+" t WHERE "+errorID+" IS NOT NULL AND "+a.filter(filter, false),
		"    ORDER BY "+errorID+") WHERE ROWNUM <= "+a.int(filter.Limit)+")",
		"ORDER BY id FOR UPDATE")
	err = backend.InTx(ctx, d.db, nil, func(tx *sql.Tx) error {
		if ids, err = backend.IDs(ctx, tx, parked); err != nil || len(ids) == 0 {
			return err
		}
		var a args
		_, err := backend.Exec(ctx, tx, a.query(change+" WHERE t.state = 'error' AND t.id IN "+a.ids(ids)+" AND "+a.filter(filter, false)))
		return err
	})
	return ids, err
}

// counts estimates the done rows beyond the limit by their ids, whose gaps it
// counts as rows.
func (d *Oracle) counts(limit int) backend.Query {
	var a args
	return a.query(
		"SELECT state, COUNT(*) FROM (",
		"    SELECT CASE WHEN claimed_until > "+now+" THEN 'claimed' WHEN available_at > "+now+" THEN 'scheduled' ELSE 'pending' END AS state FROM "+d.table.Hot,
		"    UNION ALL SELECT CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= "+now+") THEN 'pending' ELSE state END FROM "+d.table.Held,
		") GROUP BY state",
		"UNION ALL",
		"SELECT 'done', CASE WHEN n < "+a.int(limit)+" THEN n ELSE (SELECT MAX(id) - MIN(id) + 1 FROM "+d.table.Done+") END",
		"FROM (SELECT COUNT(*) AS n FROM "+d.table.Done+" WHERE ROWNUM <= "+a.int(limit)+")")
}

// ready is where a row that is pending, or scheduled for now, can be found.
func ready(table dialect.Table, columns string) string {
	const due = "(available_at IS NULL OR available_at <= " + now + ")"
	return "    SELECT " + columns + " FROM " + table.Hot + " WHERE " + due + " AND (claimed_until IS NULL OR claimed_until <= " + now + ")" +
		"\n    UNION ALL SELECT " + columns + " FROM " + table.Held + " WHERE state = 'scheduled' AND " + due
}

// oldest counts a row's age from when it could be delivered first.
func (d *Oracle) oldest() backend.Query {
	return backend.Query{SQL: "SELECT GREATEST(0, NVL(ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000" +
		" + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), 0)) FROM (" +
		"\n    SELECT " + now + " - MIN(since) AS age FROM (" +
		"\n" + ready(d.table, "GREATEST(created_at, NVL(available_at, created_at)) AS since") + "))"}
}

func (d *Oracle) topics(limit int) backend.Query {
	var a args
	return a.query("SELECT topic, COUNT(*) FROM (SELECT topic FROM (", ready(d.table, "topic"), ") WHERE ROWNUM <= "+a.int(limit)+") GROUP BY topic")
}

func (d *Oracle) listRelays() backend.Query {
	return backend.Query{SQL: "SELECT r.name, r.host, r.version, r.claim, " + timeText("r.since") + ", " + timeText("r.last_beat") + ",\n" +
		"    CASE WHEN r.until >= " + now + " THEN 1 ELSE 0 END,\n" +
		"    (SELECT COUNT(*) FROM " + d.table.Lanes + " l WHERE l.owner = r.name AND l.until >= " + now + ")\n" +
		"FROM " + d.table.Relays + " r ORDER BY r.name"}
}

func (d *Oracle) leased() backend.Query {
	return backend.Query{SQL: "SELECT COUNT(*) FROM " + d.table.Lanes + " WHERE owner IS NOT NULL AND until >= " + now}
}
