// Package sqlite implements [backend.Backend] for SQLite 3.35 and later. Fixed statements are in
// sqlite.sql; the Go files build the statements that depend on the request.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed sqlite.sql
var file string

// SQLite is the backend of a table in SQLite.
type SQLite struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	sql     backend.Statements
}

var _ backend.Backend = (*SQLite)(nil)

// New returns the backend of a table.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *SQLite {
	return &SQLite{db, d, table, backend.ParseStatements(file, table, map[string]string{
		"sequences": table.Beside("sqlite_sequence"), "name": table.Name, "held_retry": table.IndexName("held_retry"),
	})}
}

// Capabilities implements [backend.Backend]. A read covers all lanes together, because the table is
// stored in the order of ids, and the rows of one lane are far apart. If lanes were read one by one, a
// read would touch a page of the file for every row, and a settle would write a page for every row.
func (s *SQLite) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Claims: 1, Frontier: backend.OneWriter, Walk: backend.WalkByID,
		Pending: s.table.Pending, Statements: s.sql,
		Queries: backend.Queries{
			Members:     s.sql.Query("members"),
			PurgeRelays: s.sql.Query("purge relays"),
			LastID:      s.sql.Query("last id"),
			File:        backend.Query{SQL: "SELECT file FROM pragma_database_list WHERE name = ?", Args: []any{cmp.Or(s.table.Schema, "main")}},
			WrittenFrom: s.sql.Query("written from", int64(0), int64(0)),
			FreeRow:     s.sql.Query("a free row"),
			EndedClaim:  s.sql.Query("an ended claim"),
			Status: backend.StatusQueries{
				Counts: s.sql.Query("counts", int64(backend.Counted), int64(backend.Counted), int64(backend.Counted), int64(backend.Counted)), Claimed: s.sql.Query("count claimed"), Estimates: s.sql.Query("estimates"), Oldest: s.sql.Query("oldest", int64(backend.FirstRows)), OldestRetry: s.sql.Query("oldest retry"), Held: s.sql.Query("held parked"),
				Topics: s.sql.Query("topics", int64(backend.SampledTopics)), Relays: s.sql.Query("list relays"), Leased: s.sql.Query("lanes leased"),
			},
		},
	}
}

// inTx runs the function `work` in a transaction that has the database's write lock.
func (s *SQLite) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, s.db, nil, []backend.Query{s.sql.Query("begin writing")}, work)
}

// seconds formats a duration as a modifier of strftime, such as +1.500 seconds.
func seconds(by time.Duration) string { return fmt.Sprintf("%+.3f seconds", by.Seconds()) }

// timeFormat is the layout of times in the tables. The times are in UTC, so that SQLite can
// compare them as text.
const timeFormat = "2006-01-02 15:04:05.000"

// SetClaimMode implements [backend.Backend].
func (s *SQLite) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, s.sql, s.dialect, s.table, claim, s.sql.Query("set claim mode", string(claim)))
	})
}

// Heartbeat implements [backend.Backend].
func (s *SQLite) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	query := s.sql.Query("heartbeat", self.Name, self.Host, self.Version, string(self.Claim), seconds(ttl), self.Config.Text(), string(self.Claim))
	err = backend.All(ctx, s.db, query, func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
	return beat, err
}

// Acquire implements [backend.Backend].
func (s *SQLite) Acquire(ctx context.Context, relay string, count int, ttl time.Duration, step int64) ([]storage.Grant, uint64, error) {
	return backend.Grants(ctx, s.db, s.sql.Query("acquire", relay, step, seconds(ttl), int64(count)))
}

// ChangeLeases implements [backend.Backend]. Each kind of change has a statement of the same name.
func (s *SQLite) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) ([]storage.Lease, uint64, error) {
	args := []any{
		bind.JSON(backend.Column(leases, func(l *backend.Lease) []any { return []any{l.Lane, l.Fence, l.Marks, l.Calm, l.Journal} })),
		change.Relay,
	}
	if change.Kind == backend.Renew {
		args = append([]any{seconds(change.TTL)}, args...)
	}
	return backend.Leases(ctx, s.db, s.sql.Query(string(change.Kind), args...))
}

// Read implements [backend.Backend].
func (s *SQLite) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, s.db, nil, s.page(page), take)
	return line, err
}

// page returns the query of a read. It ignores MaxBytes: SQLite computes a row when the
// caller fetches it, and the caller stops at MaxBytes.
func (s *SQLite) page(page backend.Read) backend.Query {
	first := s.sql.Query("first line")
	if len(page.Positions) == 0 {
		return first
	}
	walk, args := s.walk(page.Positions, page.Except...)
	return backend.Query{
		SQL:  first.SQL + "\nUNION ALL\nSELECT * FROM (SELECT NULL, " + s.sql.Text("hot row") + "\n" + walk + " LIMIT ?)",
		Args: append(args, int64(page.Limit)),
	}
}

// Candidates implements [backend.Backend].
func (s *SQLite) Candidates(positions []storage.Position, except []string, limit int) backend.Query {
	walk, args := s.walk(positions, except...)
	return backend.Query{
		SQL: "SELECT t.id, t.lane, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(length(t.payload), length(CAST(t.payload_text AS BLOB)), 0)" +
			"\n" + walk + " LIMIT ?",
		Args: append(args, int64(limit)),
	}
}

// walk returns a FROM clause with the pending rows t at the positions. Without keys it reads in the
// order of ids. With keys, which few reads have, it reads a range of the index lane_id for each
// position. CROSS JOIN makes SQLite visit the positions in the given order.
func (s *SQLite) walk(positions []storage.Position, except ...string) (from string, args []any) {
	if positions[0].Key != "" {
		places := bind.JSON(backend.Column(positions, func(p *storage.Position) []any { return []any{p.Lane, p.After, p.Until, p.Key} }))
		return "FROM json_each(?) AS j CROSS JOIN " + s.table.Pending + " AS t INDEXED BY " + s.table.IndexName("lane_id") +
			"\nWHERE t.lane = json_extract(j.value, '$[0]') AND t.id > json_extract(j.value, '$[1]') AND t.id <= json_extract(j.value, '$[2]')" +
			" AND t.message_key = json_extract(j.value, '$[3]')", []any{places}
	}
	whole := backend.Whole(positions)
	where, args := "t.id > ? AND t.id <= ? AND "+backend.WithinWhole(positions), []any{whole.After, whole.Until}
	if len(except) > 0 {
		where, args = where+" AND (t.topic NOT IN (SELECT value FROM json_each(?)) OR t.sinks <> '')", append(args, bind.JSON(except))
	}
	return "FROM " + s.table.Pending + byID + "\nWHERE " + where + "\nORDER BY t.id", args
}

// byID makes SQLite find rows t by their ids without an index, because the table is stored in the
// order of ids. Without byID, SQLite would read the whole table in the order of some index if the
// statistics are from an empty table.
const byID = " AS t NOT INDEXED"

// Pick implements [backend.Backend].
func (s *SQLite) Pick(rows []storage.RowID, held bool) backend.Query {
	name := "pick"
	if held {
		name = "pick held"
	}
	places := bind.JSON(backend.Column(rows, func(row *storage.RowID) [2]int64 { return [2]int64{int64(row.Lane), row.ID} }))
	return s.sql.Query(name, places)
}

// AttemptLogs implements [backend.Backend].
func (s *SQLite) AttemptLogs(rows []storage.RowID, held bool) backend.Query {
	name := "attempt logs"
	if held {
		name = "attempt logs of held rows"
	}
	return s.sql.Query(name, bind.JSON(backend.Column(rows, func(row *storage.RowID) [2]int64 { return [2]int64{int64(row.Lane), row.ID} })))
}

// Due implements [backend.Backend].
func (s *SQLite) Due(lanes []int, after storage.DueCursor, limit, _ int) backend.Query {
	return s.sql.Query("due", bind.JSON(lanes), after.At.UTC().Format(timeFormat), after.ID, int64(limit))
}

// BlockedKeys implements [backend.Backend].
func (s *SQLite) BlockedKeys(lanes []int, limit int) backend.Query {
	return s.sql.Query("blocked keys", bind.JSON(lanes), int64(limit))
}

// BlockedAmong implements [backend.Backend].
func (s *SQLite) BlockedAmong(keys []storage.LaneKey) backend.Query {
	names := bind.JSON(backend.Column(keys, func(key *storage.LaneKey) []any { return []any{key.Lane, key.Key} }))
	return s.sql.Query("blocked among", names)
}

// Remaining implements [backend.Backend].
func (s *SQLite) Remaining(limit int) backend.Query {
	return s.sql.Query("remaining", int64(limit), int64(limit))
}

// Purge implements [backend.Backend].
func (s *SQLite) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		if purged, err = backend.Exec(ctx, tx, s.sql.Query("purge", seconds(-retention), int64(limit))); err != nil {
			return err
		}
		ids, err := backend.Exec(ctx, tx, s.sql.Query("purge ids", seconds(-backend.IDsKept(retention)), int64(limit)))
		purged = max(purged, ids)
		return err
	})
	return purged, until, err
}

// Claim implements [backend.Backend].
func (s *SQLite) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	return backend.ReadRows(ctx, s.db, s.claim(request))
}

func (s *SQLite) claim(request storage.ClaimRequest) backend.Query {
	args := []any{request.Relay, request.Token, seconds(request.TTL)}
	where := s.sql.Text("by rows") + " AND claimed_until IS NULL"
	if len(request.Topics) > 0 {
		where, args = where+" AND topic IN (SELECT value FROM json_each(?))", append(args, bind.JSON(request.Topics))
	}
	if len(request.Except) > 0 {
		where, args = where+" AND topic NOT IN (SELECT value FROM json_each(?))", append(args, bind.JSON(request.Except))
	}
	return query(`UPDATE `+s.table.Pending+` SET claimed_by = ?, claim_token = ?, claimed_until = `+s.sql.Text("from now")+`
WHERE id IN (
    WITH picked AS (SELECT id, priority, coalesce(length(payload), length(CAST(payload_text AS BLOB)), 0) AS size FROM `+s.table.Pending+` AS h WHERE `+where+` ORDER BY `+backend.ClaimOrder(request.Pick)+` LIMIT ?),
    fitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
    SELECT id FROM fitting WHERE bytes_before < ?)
RETURNING `+strings.ReplaceAll(s.sql.Text("hot row"), "t.", ""), // RETURNING may not use an alias
		append(args, int64(request.Limit), backend.MostBytes(request))...)
}

// Extend implements [backend.Backend].
func (s *SQLite) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return backend.IDs(ctx, s.db, s.sql.Query("extend", seconds(ttl), token, bind.JSON(ids)))
}

// Reclaim implements [backend.Backend].
func (s *SQLite) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		freed, err = backend.Exec(ctx, tx, s.sql.Query("free ended claims", int64(limit)))
		return err
	})
	if err != nil {
		return 0, err
	}
	back, err := s.bringBack(ctx, limit)
	return freed + back, err
}

// bringBack moves due held rows to the table outbox, and returns the number of rows that it has moved or parked. If the
// constraints of outbox reject a row, bringBack tries again with half the limit. At a limit of 1 it parks the rejected row.
func (s *SQLite) bringBack(ctx context.Context, limit int) (back int, err error) {
	refused := false
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		back, err = backend.Exec(ctx, tx, s.sql.Query("bring back", int64(limit)))
		if refused = s.dialect.Invalid(err); refused && limit <= 1 {
			back, err = backend.Exec(ctx, tx, s.sql.Query("refuse the first", "the table's constraints refuse the row: "+err.Error()))
			return err
		}
		if err != nil {
			return err
		}
		_, err = backend.Exec(ctx, tx, s.sql.Query("remove what is back", int64(limit)))
		return err
	})
	if refused && limit > 1 {
		return s.bringBack(ctx, limit/2)
	}
	return back, err
}
