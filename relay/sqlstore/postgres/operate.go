package postgres

import (
	"context"
	"strings"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// List implements [backend.Operating].
func (p *Postgres) List(ctx context.Context, filter backend.Filter) ([]relay.Info, error) {
	var a args
	where := a.filter(filter)
	if filter.State != "" {
		where += " AND t.state = " + a.text(string(filter.State))
	}
	return backend.ReadInfos(ctx, p.db, a.query(
		"SELECT "+p.sql.Text("listed row"),
		"FROM "+p.table.Messages()+" AS t WHERE "+where,
		"ORDER BY t.id LIMIT "+a.int(filter.Limit)))
}

// filter leaves out what is empty, so that an index may serve what is there.
func (a *args) filter(filter backend.Filter) string {
	where := []string{"t.id > " + a.add(filter.AfterID, "bigint")}
	if filter.ByID {
		where = append(where, "(t.id = ANY ("+a.ids(filter.RowIDs)+") OR t.message_id = ANY ("+a.add(texts(filter.MessageIDs), "uuid[]")+"))")
	}
	if filter.Topic != "" {
		where = append(where, "t.topic = "+a.text(filter.Topic))
	}
	if filter.Key != "" {
		where = append(where, "t.message_key = "+a.text(filter.Key))
	}
	if !filter.Since.IsZero() {
		where = append(where, "t.created_at >= "+a.add(timestamp(filter.Since), "timestamptz"))
	}
	if filter.Error != "" {
		where = append(where, "strpos(t.last_error, "+a.text(filter.Error)+") > 0")
	}
	return strings.Join(where, " AND ")
}

// parked selects and locks the parked rows that a filter means.
func (p *Postgres) parked(a *args, filter backend.Filter) string {
	return "WITH parked AS MATERIALIZED (\n    SELECT lane, id, message_id FROM " + p.table.Held() + " AS t WHERE t.state = 'error' AND " + a.filter(filter) +
		"\n    ORDER BY id LIMIT " + a.int(filter.Limit) + " FOR UPDATE)"
}

// Requeue implements [backend.Operating].
func (p *Postgres) Requeue(ctx context.Context, filter backend.Filter) ([]int64, error) {
	var a args
	return backend.IDs(ctx, p.db, a.query(
		p.parked(&a, filter),
		"UPDATE "+p.table.Held()+" AS t SET state = 'scheduled', attempts = 0, crashes = 0, available_at = now()",
		"FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id",
		"RETURNING t.id"))
}

// Discard implements [backend.Operating].
func (p *Postgres) Discard(ctx context.Context, filter backend.Filter) ([]int64, error) {
	var a args
	return backend.IDs(ctx, p.db, a.query(
		p.parked(&a, filter),
		"DELETE FROM "+p.table.Held()+" AS t USING parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id",
		"RETURNING t.id"))
}
