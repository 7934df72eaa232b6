package sqlite

import (
	"context"
	"strings"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Status implements [backend.Operating].
func (s *SQLite) Status(ctx context.Context) (relay.Status, error) {
	return backend.ReadStatus(ctx, s.db, backend.StatusQueries{
		Mode: s.sql.Query("claim mode"), Counts: s.sql.Query("counts", int64(backend.CountedDone), int64(backend.CountedDone)), Oldest: s.sql.Query("oldest"),
		Topics: s.sql.Query("topics", int64(backend.SampledTopics)), Relays: s.sql.Query("list relays"), Leased: s.sql.Query("lanes leased"),
	})
}

// List implements [backend.Operating].
func (s *SQLite) List(ctx context.Context, filter backend.Filter) ([]relay.Info, error) {
	where, args := conditions(filter)
	if filter.State != "" {
		where, args = where+" AND t.state = ?", append(args, string(filter.State))
	}
	return backend.ReadInfos(ctx, s.db, query("SELECT "+s.sql.Text("listed row")+"\nFROM "+s.table.Messages()+" AS t WHERE "+where+" ORDER BY t.id LIMIT ?",
		append(args, int64(filter.Limit))...))
}

// conditions leave out what is empty.
func conditions(filter backend.Filter) (string, []any) {
	where, args := []string{"t.id > ?"}, []any{filter.AfterID}
	add := func(wanted bool, condition string, values ...any) {
		if wanted {
			where, args = append(where, condition), append(args, values...)
		}
	}
	add(filter.ByID, "(t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?)))",
		list(filter.RowIDs), list(filter.MessageIDs))
	add(filter.Topic != "", "t.topic = ?", filter.Topic)
	add(filter.Key != "", "t.message_key = ?", filter.Key)
	add(!filter.Since.IsZero(), "t.created_at >= ?", filter.Since.UTC().Format(timeFormat))
	add(filter.Error != "", "instr(t.last_error, ?) > 0", filter.Error)
	return strings.Join(where, " AND "), args
}

// Requeue implements [backend.Operating].
func (s *SQLite) Requeue(ctx context.Context, filter backend.Filter) ([]int64, error) {
	parked, args := s.parked(filter)
	return backend.IDs(ctx, s.db, query("UPDATE "+s.table.Held()+" SET state = 'scheduled', attempts = 0, crashes = 0, available_at = "+s.sql.Text("now")+
		"\nWHERE (id, message_id) IN ("+parked+") RETURNING id", args...))
}

// Discard implements [backend.Operating].
func (s *SQLite) Discard(ctx context.Context, filter backend.Filter) ([]int64, error) {
	parked, args := s.parked(filter)
	return backend.IDs(ctx, s.db, query("DELETE FROM "+s.table.Held()+" WHERE (id, message_id) IN ("+parked+") RETURNING id", args...))
}

// parked selects the parked rows that a filter means.
func (s *SQLite) parked(filter backend.Filter) (string, []any) {
	where, args := conditions(filter)
	return "SELECT t.id, t.message_id FROM " + s.table.Held() + " AS t WHERE t.state = 'error' AND " + where + " ORDER BY t.id LIMIT ?", append(args, int64(filter.Limit))
}
