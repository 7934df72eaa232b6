// Package postgres implements [backend.Backend] for PostgreSQL 13 and later. Fixed statements
// are in postgres.sql; the Go files build the statements that depend on the request.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed postgres.sql
var file string

// Postgres is the backend of a table in PostgreSQL.
type Postgres struct {
	db       *sql.DB
	dialect  dialect.Dialect
	table    dialect.Table
	reader   backend.Reader // nil if pages are read with database/sql
	sql      backend.Statements
	bounded  []backend.Query // limits the time that a transaction waits for a lock
	distrust atomic.Int64    // until this time, in Unix nanoseconds, the server makes a new plan for each page's query; see distrustFor
}

var _ backend.Backend = (*Postgres)(nil)

// New returns the backend of a table. If the reader isn't nil, it reads pages in place of database/sql.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table, reader backend.Reader) *Postgres {
	statements := backend.ParseStatements(file, table, map[string]string{"words": words})
	return &Postgres{db: db, dialect: d, table: table, reader: reader, sql: statements, bounded: []backend.Query{statements.Query("bound waiting")}}
}

// words is an array of 100 texts. The expression {dear} compares a text with each of them, so that the planner
// considers the expression expensive. The server never evaluates the expression. See "dear" in postgres.sql.
var words = "{" + strings.Repeat("x,", 99) + "x}"

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// Capabilities implements [backend.Backend].
func (p *Postgres) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Tx: readCommitted, Claims: 2, Frontier: backend.Snapshots,
		Pending: p.table.Pending, Statements: p.sql,
		Queries: backend.Queries{
			Members:       p.sql.Query("members"),
			PurgeRelays:   p.sql.Query("purge relays"),
			LastID:        p.sql.Query("last id"),
			WrittenFrom:   p.sql.Query("written from", int64(0)),
			FreeRow:       p.sql.Query("a free row", true),
			EndedClaim:    p.sql.Query("an ended claim", true),
			IDsOutOfOrder: p.sql.Query("ids out of order"),
			RowSecurity:   p.sql.Query("row security"),
			Status: backend.StatusQueries{
				Counts: p.sql.Query("counts", int64(backend.Counted)), Claimed: p.sql.Query("count claimed"), Estimates: p.sql.Query("estimates"), Oldest: p.sql.Query("oldest", int64(backend.FirstRows/storage.Lanes)), OldestRetry: p.sql.Query("oldest retry"), Held: p.sql.Query("held parked"),
				Topics: p.sql.Query("topics", int64(backend.SampledTopics)), Relays: p.sql.Query("list relays"), Leased: p.sql.Query("lanes leased"),
			},
		},
	}
}

// args collects the arguments of a statement. Arrays are sent as text, which every driver
// supports.
type args []any

// add returns the placeholder for a value, cast to the type.
func (a *args) add(value any, as string) string {
	*a = append(*a, value)
	return "$" + strconv.Itoa(len(*a)) + "::" + as
}

// timestamp is the layout of times in arguments, which are in UTC. The zero time is in the year 1, before all other times.
const timestamp = "2006-01-02 15:04:05.999999+00"

func (p *Postgres) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, p.db, readCommitted, p.bounded, work)
}

// SetClaimMode implements [backend.Backend].
func (p *Postgres) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return p.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, p.sql, p.dialect, p.table, claim, p.sql.Query("set claim mode", string(claim)))
	})
}

// Heartbeat implements [backend.Backend]. If no epoch is stored for the server, Heartbeat stores a new one.
func (p *Postgres) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	const noEpoch = "-" // what the statement returns instead of an epoch if the table of epochs is empty
	var name string
	query := p.sql.Query("heartbeat", self.Name, self.Host, self.Version, string(self.Claim), ttl.Microseconds(), self.Config.Text())
	for {
		err := backend.All(ctx, p.db, query, func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
		if err != nil || !beat.Stored || beat.Epoch != noEpoch {
			return beat, err
		}
		if _, err := backend.Exec(ctx, p.db, p.sql.Query("begin epoch")); err != nil {
			return beat, err
		}
	}
}

// Acquire implements [backend.Backend].
func (p *Postgres) Acquire(ctx context.Context, relay string, count int, ttl time.Duration, step int64) (grants []storage.Grant, xid uint64, err error) {
	err = backend.InTx(ctx, p.db, readCommitted, nil, func(tx *sql.Tx) error {
		free, err := backend.IDs(ctx, tx, p.sql.Query("lock free lanes", int64(count)))
		if err != nil || len(free) == 0 {
			return err
		}
		grants, xid, err = backend.Grants(ctx, tx, p.sql.Query("acquire", dialect.PostgresArray(free), relay, ttl.Microseconds(), step))
		return err
	})
	return grants, xid, err
}

// ChangeLeases implements [backend.Backend]. Each kind of change has a statement of the same name.
func (p *Postgres) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) ([]storage.Lease, uint64, error) {
	query := p.sql.Query(string(change.Kind),
		dialect.PostgresArray(backend.Column(leases, func(l *backend.Lease) int { return l.Lane })),
		dialect.PostgresArray(backend.Column(leases, func(l *backend.Lease) int64 { return l.Fence })),
		dialect.PostgresArray(backend.Column(leases, func(l *backend.Lease) string { return l.Marks })),
		dialect.PostgresArray(backend.Column(leases, func(l *backend.Lease) bool { return l.Calm })),
		dialect.PostgresArray(backend.Column(leases, func(l *backend.Lease) string { return l.Journal })),
		change.Relay)
	switch change.Kind {
	case backend.Renew:
		query.Args = append(query.Args, change.Epoch, change.TTL.Microseconds(),
			dialect.PostgresArray(backend.Column(change.Keeps, func(l *storage.Lease) int { return l.Lane })),
			dialect.PostgresArray(backend.Column(change.Keeps, func(l *storage.Lease) int64 { return l.Fence })))
	case backend.Release:
		query.Args = append(query.Args, change.Epoch)
	}
	return backend.Leases(ctx, p.db, query)
}

// Read implements [backend.Backend].
func (p *Postgres) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (line backend.FirstLine, err error) {
	if len(page.Positions) == 0 {
		err = backend.One(ctx, p.db, p.sql.Query("first line"), &line)
		return line, err
	}
	began := time.Now()
	line, known, err := backend.ReadPage(ctx, p.db, p.reader, p.page(page), take)
	if !known {
		p.reader = nil
	}
	if now := time.Now(); now.Sub(began) > tookLong { // the server may have cached a bad plan
		p.distrust.Store(now.Add(distrustFor).UnixNano())
	}
	return line, err
}

// page returns the query of a read. The first row of its result is the [backend.FirstLine]: the highest assigned id, the
// transaction's number if the read requests it, the snapshot and the server's epoch. The other rows are messages, up to the row at which
// the total size of the payloads reaches MaxBytes.
func (p *Postgres) page(page backend.Read) backend.Query {
	var a args
	xid := "0"
	if page.Number {
		xid = "pg_current_xact_id()"
	}
	from := p.ranges(&a, page.Positions, "*", page.Except, cmp.Or(page.Share, page.Limit)) + " LIMIT " + a.add(int64(page.Limit), "bigint")
	if page.MaxBytes <= 0 {
		from = "FROM (SELECT t.* " + from + ") AS t WHERE true"
	} else {
		size := p.sql.Text("size")
		from = "FROM (SELECT t.*, sum(" + size + ") OVER (ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
			"\nFROM (SELECT t.* " + from + ") AS t) AS t WHERE bytes_before < " + a.add(int64(page.MaxBytes), "bigint")
	}
	query := "SELECT concat_ws(' ', " + p.sql.Text("given") + ", 0, " + xid + ", pg_current_snapshot(), " + p.sql.Text("server epoch") + ")," +
		"\n    " + p.sql.Text("no row") +
		"\nUNION ALL" +
		"\nSELECT NULL, " + p.sql.Text("hot row") +
		"\n" + from
	if time.Now().UnixNano() < p.distrust.Load() {
		query += " AND " + p.planNow(&a)
	}
	return backend.Query{SQL: query, Args: a}
}

// ranges returns a FROM clause with the pending rows t at the positions. For each position in turn, the clause reads a
// range of the primary key, up to a limit. It leaves out rows of the excepted topics that name no sinks. The COALESCE
// makes the planner use the primary key; see "dear" in postgres.sql. The condition compares lane and id separately:
// with a comparison of rows, (lane, id) <= (…), PostgreSQL 17 and older would read to the end of the lane.
func (p *Postgres) ranges(a *args, positions []storage.Position, columns string, except []string, limit int) string {
	where := ""
	if len(except) > 0 {
		where = " AND (h.topic <> ALL (" + a.add(dialect.PostgresArray(except), "text[]") + ") OR h.sinks <> '')"
	}
	names, arrays := []string{"lane", "after", "until"}, []string{
		a.add(dialect.PostgresArray(backend.Column(positions, func(at *storage.Position) int { return at.Lane })), "smallint[]"),
		a.add(dialect.PostgresArray(backend.Column(positions, func(at *storage.Position) int64 { return at.After })), "bigint[]"),
		a.add(dialect.PostgresArray(backend.Column(positions, func(at *storage.Position) int64 { return at.Until })), "bigint[]"),
	}
	if len(positions) > 0 && positions[0].Key != "" {
		names = append(names, "key")
		arrays = append(arrays, a.add(dialect.PostgresArray(backend.Column(positions, func(at *storage.Position) string { return at.Key })), "text[]"))
		where += " AND h.message_key = p.key"
	}
	return "FROM unnest(" + strings.Join(arrays, ", ") + ") AS p (" + strings.Join(names, ", ") + ")" +
		"\nCROSS JOIN LATERAL (SELECT " + columns + " FROM " + p.table.Pending + " AS h" +
		"\n    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('" + words + "'::text[]))::int) AND h.id <= p.until" + where +
		"\n    ORDER BY h.lane, h.id LIMIT " + a.add(int64(limit), "bigint") + ") AS t"
}

// PostgreSQL may cache the plan of the query that reads a page. This saves time, because planning takes longer than reading a few
// rows. A cached plan uses the primary key, unless the server made it while the table's file was known to be empty. The file is known to be
// empty only if the table was vacuumed before its first row was inserted, because the file never shrinks. Such a plan scans the table once
// for each lane. So if a page took longer than tookLong, the server makes a new plan for each page until distrustFor has passed.
const (
	tookLong    = 100 * time.Millisecond
	distrustFor = time.Minute
)

// planNow returns a condition that is always true. It makes PostgreSQL plan the statement at each execution (a custom
// plan) instead of only once (a generic plan); see "never" in postgres.sql.
func (p *Postgres) planNow(a *args) string {
	return "(" + a.add(true, "boolean") + " OR " + p.sql.Text("never") + ")"
}

// Candidates implements [backend.Backend].
func (p *Postgres) Candidates(positions []storage.Position, except []string, limit int) backend.Query {
	var a args
	columns := "h.id, h.lane, h.topic, h.message_key, h.sinks, COALESCE(octet_length(h.payload), octet_length(h.payload_text), 0) AS bytes"
	query := "SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, ''), t.sinks, t.bytes" +
		"\n" + p.ranges(&a, positions, columns, except, limit) +
		"\nWHERE " + p.planNow(&a) + " LIMIT " + a.add(int64(limit), "bigint")
	return backend.Query{SQL: query, Args: a}
}

// Pick implements [backend.Backend].
func (p *Postgres) Pick(rows []storage.RowID, held bool) backend.Query {
	name := "pick"
	if held {
		name = "pick held"
	}
	return p.sql.Query(name,
		dialect.PostgresArray(backend.Column(rows, func(row *storage.RowID) int { return row.Lane })),
		dialect.PostgresArray(backend.Column(rows, func(row *storage.RowID) int64 { return row.ID })), true)
}

// AttemptLogs implements [backend.Backend].
func (p *Postgres) AttemptLogs(rows []storage.RowID, held bool) backend.Query {
	name := "attempt logs"
	if held {
		name = "attempt logs of held rows"
	}
	return p.sql.Query(name,
		dialect.PostgresArray(backend.Column(rows, func(row *storage.RowID) int { return row.Lane })),
		dialect.PostgresArray(backend.Column(rows, func(row *storage.RowID) int64 { return row.ID })), true)
}

// Due implements [backend.Backend].
func (p *Postgres) Due(lanes []int, after storage.DueCursor, limit, maxBytes int) backend.Query {
	return p.sql.Query("due", dialect.PostgresArray(lanes), after.At.UTC().Format(timestamp), after.ID, int64(limit), int64(max(1, maxBytes)), true)
}

// BlockedKeys implements [backend.Backend].
func (p *Postgres) BlockedKeys(lanes []int, limit int) backend.Query {
	return p.sql.Query("blocked keys", dialect.PostgresArray(lanes), int64(limit), true)
}

// BlockedAmong implements [backend.Backend].
func (p *Postgres) BlockedAmong(keys []storage.LaneKey) backend.Query {
	return p.sql.Query("blocked among",
		dialect.PostgresArray(backend.Column(keys, func(key *storage.LaneKey) int { return key.Lane })),
		dialect.PostgresArray(backend.Column(keys, func(key *storage.LaneKey) string { return key.Key })), true)
}

// Remaining implements [backend.Backend].
func (p *Postgres) Remaining(limit int) backend.Query {
	return p.sql.Query("remaining", int64(limit), true)
}

// Purge implements [backend.Backend].
func (p *Postgres) Purge(ctx context.Context, retention time.Duration, limit int, since time.Time) (purged int, until time.Time, err error) {
	from := "-infinity"
	if !since.IsZero() {
		from = since.UTC().Format(timestamp)
	}
	query := p.sql.Query("purge", retention.Microseconds(), from, int64(limit), true)
	ids := 0
	err = p.inTx(ctx, func(tx *sql.Tx) (err error) {
		if err := backend.One(ctx, tx, query, &purged, &until); err != nil {
			return err
		}
		ids, err = backend.Exec(ctx, tx, p.sql.Query("purge ids", backend.IDsKept(retention).Microseconds(), int64(limit), true))
		return err
	})
	if err != nil {
		return 0, time.Time{}, err
	}
	return max(purged, ids), until, nil
}

// Claim implements [backend.Backend].
func (p *Postgres) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	return backend.ReadRows(ctx, p.db, p.claim(request))
}

// claim returns the statement of a claim. The statement selects the rows in a CTE named picked. The
// CTE is materialized, because otherwise the server might run its SELECT again for each row, and so
// exceed the limit. The SELECT follows the order of an index for claiming by rows.
func (p *Postgres) claim(request storage.ClaimRequest) backend.Query {
	var a args
	all := p.sql.Text("every id")
	if request.Pick == storage.Priority {
		all = p.sql.Text("every priority")
	}
	topics := ""
	if len(request.Topics) > 0 {
		topics += " AND topic = ANY (" + a.add(dialect.PostgresArray(request.Topics), "text[]") + ")"
	}
	if len(request.Except) > 0 {
		topics += " AND topic <> ALL (" + a.add(dialect.PostgresArray(request.Except), "text[]") + ")"
	}
	query := p.sql.Text("with claim") + "," +
		"\npicked AS MATERIALIZED (" +
		"\n    SELECT " + p.sql.Text("place") + ", t.priority, " + p.sql.Text("size") + " AS size FROM " + p.table.Pending + " AS t" +
		"\n    WHERE " + p.sql.Text("by rows") + " AND claimed_until IS NULL AND " + all + topics + " AND " + p.planNow(&a) +
		"\n    ORDER BY " + backend.ClaimOrder(request.Pick) + " LIMIT " + a.add(int64(request.Limit), "bigint") + " FOR NO KEY UPDATE OF t SKIP LOCKED)," +
		"\nfitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)" +
		"\nUPDATE " + p.table.Pending + " AS t" +
		"\nSET claimed_by = " + a.add(request.Relay, "text") + ", claim_token = " + a.add(request.Token, "text") +
		", claimed_until = now() + (" + a.add(request.TTL.Microseconds(), "bigint") + " * interval '1 microsecond')" +
		"\nFROM fitting AS g WHERE g.bytes_before < " + a.add(backend.MostBytes(request), "bigint") + " AND " + p.sql.Text("is at place") +
		"\nRETURNING " + p.sql.Text("hot row")
	return backend.Query{SQL: query, Args: a}
}

// Extend implements [backend.Backend].
func (p *Postgres) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return backend.IDs(ctx, p.db, p.sql.Query("extend", token, dialect.PostgresArray(ids), ttl.Microseconds(), true))
}

// Reclaim implements [backend.Backend].
func (p *Postgres) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	for _, name := range []string{"free ended claims", "bring back"} {
		err := p.inTx(ctx, func(tx *sql.Tx) error {
			changed, err := backend.Exec(ctx, tx, p.sql.Query(name, int64(limit), true))
			freed += changed
			return err
		})
		if err != nil {
			return freed, err
		}
	}
	return freed, nil
}
