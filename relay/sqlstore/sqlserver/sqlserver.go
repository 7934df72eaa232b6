// Package sqlserver implements [backend.Backend] for SQL Server 2016 and later, and for Azure
// SQL. Fixed statements are in sqlserver.sql; the Go files build the statements that depend on
// the request. The package's tests compare the statements with testdata and need no server.
package sqlserver

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed sqlserver.sql
var file string

// SQLServer is the backend of a table in SQL Server.
type SQLServer struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	sql     backend.Statements
}

var _ backend.TransactionLister = (*SQLServer)(nil)

// New returns the backend of a table. The dialect must match the server.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *SQLServer {
	words := map[string]string{"reading": dialect.ReadingLevel(d), "object": dialect.SQLServerObject(table, "")}
	for _, suffix := range []string{"id", "held", "lanes", "done"} {
		words["object "+suffix] = dialect.SQLServerObject(table, "_"+suffix)
	}
	for _, suffix := range []string{"lanes_fence", "held_retry", "held_holds", "held_due", "done_finished", "claim_until"} {
		words["index "+suffix] = table.IndexName(suffix)
	}
	return &SQLServer{db, d, table, backend.ParseStatements(file, table, words)}
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// none is a dummy argument for a batch that uses no parameter but must have one; see "at one moment" in sqlserver.sql.
const none = int64(0)

// Capabilities implements [backend.Backend].
func (d *SQLServer) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Tx: readCommitted, Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkPositions,
		Pending: d.table.Pending, Statements: d.sql,
		Queries: backend.Queries{
			Members:     d.sql.Query("members", none),
			PurgeRelays: d.sql.Query("purge relays", -millis(24*time.Hour)),
			LastID:      d.sql.Query("last id"),
			Status: backend.StatusQueries{
				Counts: d.sql.Query("counts", int64(backend.Counted)), Claimed: d.sql.Query("count claimed", none), Estimates: d.sql.Query("estimates", none), Oldest: d.sql.Query("oldest", none), OldestRetry: d.sql.Query("oldest retry", none), Held: d.sql.Query("held parked", none),
				Topics: d.sql.Query("topics", int64(backend.SampledTopics)), Relays: d.sql.Query("list relays", none), Leased: d.sql.Query("lanes leased", none),
			},
		},
	}
}

// args collects the arguments of a statement.
type args []any

// add returns the placeholder for a value.
func (a *args) add(value any) string {
	*a = append(*a, value)
	return "@p" + strconv.Itoa(len(*a))
}

func (a *args) query(lines ...string) backend.Query {
	return backend.Query{SQL: strings.Join(lines, "\n"), Args: *a}
}

// millis returns the duration in milliseconds, rounded up.
func millis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// timestamp formats a time in UTC. The zero time is in the year 1, before all other times.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.0000000") }

// binary is a collation that compares texts by their code units. Even with this collation, the operator = ignores spaces at the end.
const binary = "COLLATE Latin1_General_100_BIN2"

// inTx runs the function `work` in a transaction. The transaction begins with the statement "bound waiting", which
// limits the wait for locks.
func (d *SQLServer) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, d.db, readCommitted, []backend.Query{d.sql.Query("bound waiting")}, work)
}

// change runs a statement with inTx, and returns the number of affected rows.
func (d *SQLServer) change(ctx context.Context, query backend.Query) (affected int, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		affected, err = backend.Exec(ctx, tx, query)
		return err
	})
	return affected, err
}

// SetClaimMode implements [backend.Backend].
func (d *SQLServer) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return d.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, d.sql, d.dialect, d.table, claim, d.sql.Query("set claim mode", string(claim)))
	})
}

// Heartbeat implements [backend.Backend].
func (d *SQLServer) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	query := d.sql.Query("heartbeat", self.Name, self.Host, self.Version, string(self.Claim), millis(ttl), self.Config.Text())
	err = backend.All(ctx, d.db, query, func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
	return beat, err
}

// Acquire implements [backend.Backend].
func (d *SQLServer) Acquire(ctx context.Context, relay string, count int, ttl time.Duration, step int64) ([]storage.Grant, uint64, error) {
	return backend.Grants(ctx, d.db, d.sql.Query("acquire", int64(count), relay, millis(ttl), step))
}

// ChangeLeases implements [backend.Backend]. Each kind of change has a statement of the same name.
func (d *SQLServer) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) ([]storage.Lease, uint64, error) {
	query := d.sql.Query(string(change.Kind),
		dialect.SQLServerList(backend.Column(leases, func(l *backend.Lease) []any { return []any{l.Lane, l.Fence, l.Marks, l.Calm, l.Journal} })), change.Relay)
	switch change.Kind {
	case backend.Renew:
		query.Args = append(query.Args, change.Epoch, millis(change.TTL))
	case backend.Release:
		query.Args = append(query.Args, change.Epoch)
	}
	return backend.Leases(ctx, d.db, query)
}

// Grant implements [backend.TransactionLister]. Every user may run the statement of ListOpen. If a
// server nevertheless rejects the statement, the privilege to see the state of the database may
// help.
func (d *SQLServer) Grant() string { return "VIEW DATABASE STATE" }

// ListOpen implements [backend.TransactionLister].
func (d *SQLServer) ListOpen(ctx context.Context, _ string) (backend.OpenList, error) {
	return backend.ReadOpenList(ctx, d.db, d.sql.Query("open transactions"))
}

// Read implements [backend.Backend].
func (d *SQLServer) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, d.db, nil, d.page(page), take)
	return line, err
}

// page returns the query of a read. It has an ORDER BY, because without one a join may return rows
// in the order in which their pages arrive from the disk. Its last row is the one at which the total size of the payloads reaches MaxBytes.
func (d *SQLServer) page(read backend.Read) backend.Query {
	a := args{positionList(read.Positions)}
	rows := "(" + d.ranges(&a, read.Positions, "*", cmp.Or(read.Share, read.Limit), read.Limit) + ") AS t"
	if read.MaxBytes > 0 {
		size := d.sql.Text("size")
		rows = "(SELECT t.*, SUM(" + size + ") OVER (ORDER BY t.n, t.id ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
			"\nFROM " + rows + ") AS t WHERE t.bytes_before < " + a.add(int64(read.MaxBytes))
	}
	return a.query(
		d.sql.Text("positions"),
		d.sql.Text("first line"),
		d.sql.Text("at one moment"),
		"SELECT line, id, lane, message_id, topic, message_key, sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags FROM (",
		"SELECT @first AS line, -1 AS n, "+d.sql.Text("no row"),
		"UNION ALL",
		"SELECT NULL, t.n, "+d.sql.Text("hot row"),
		"FROM "+rows,
		") AS page ORDER BY n, id;",
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
}

// positionList returns the argument of the statement "positions".
func positionList(positions []storage.Position) string {
	items := make([][]any, len(positions))
	for i, p := range positions {
		items[i] = []any{i, p.Lane, p.After, p.Until, bind.Nullable(p.Key)}
	}
	return dialect.SQLServerList(items)
}

// ranges returns a SELECT of the pending rows at each position in turn. It also compares the lengths of
// message keys, because = ignores spaces at the end. It forces a seek, except if it has a condition on
// the message key: the lane is a column that is computed from this key, so the optimizer may replace the
// lane by its expression and simplify the expression, and then finds no plan with a seek (error 8622).
func (d *SQLServer) ranges(a *args, positions []storage.Position, columns string, share, limit int) string {
	hint, key := "FORCESEEK", ""
	if len(positions) > 0 && positions[0].Key != "" {
		hint, key = "INDEX(1)", " AND h.message_key = p.message_key AND DATALENGTH(h.message_key) = DATALENGTH(p.message_key)"
	}
	return "SELECT TOP (" + a.add(int64(limit)) + ") p.n, h.* FROM @positions AS p" +
		"\nCROSS APPLY (SELECT TOP (" + a.add(int64(share)) + ") " + columns + " FROM " + d.table.Pending + " AS h WITH (" + hint + ")" +
		"\n    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until" + key + " ORDER BY h.id) AS h ORDER BY p.n, h.id"
}

// Candidates implements [backend.Backend].
func (d *SQLServer) Candidates(positions []storage.Position, _ []string, limit int) backend.Query {
	a := args{positionList(positions)}
	columns := "h.id, h.lane, h.topic, h.message_key, h.sinks, COALESCE(DATALENGTH(h.payload), DATALENGTH(h.payload_text), 0) AS bytes"
	return a.query(
		d.sql.Text("positions"),
		d.sql.Text("at one moment"),
		"SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, N''), t.sinks, t.bytes",
		"FROM ("+d.ranges(&a, positions, columns, limit, limit)+") AS t ORDER BY t.n, t.id;",
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
}

// Pick implements [backend.Backend].
func (d *SQLServer) Pick(rows []storage.RowID, held bool) backend.Query {
	name := "pick"
	if held {
		name = "pick held"
	}
	places := dialect.SQLServerList(backend.Column(rows, func(row *storage.RowID) [2]int64 { return [2]int64{int64(row.Lane), row.ID} }))
	return d.sql.Query(name, places)
}

// AttemptLogs implements [backend.Backend].
func (d *SQLServer) AttemptLogs(rows []storage.RowID, held bool) backend.Query {
	name := "attempt logs"
	if held {
		name = "attempt logs of held rows"
	}
	return d.sql.Query(name, dialect.SQLServerList(backend.Column(rows, func(row *storage.RowID) [2]int64 { return [2]int64{int64(row.Lane), row.ID} })))
}

// Due implements [backend.Backend].
func (d *SQLServer) Due(lanes []int, after storage.DueCursor, limit, maxBytes int) backend.Query {
	return d.sql.Query("due", timestamp(after.At), int64(limit), dialect.SQLServerList(lanes), after.ID, int64(max(1, maxBytes)))
}

// BlockedKeys implements [backend.Backend].
func (d *SQLServer) BlockedKeys(lanes []int, limit int) backend.Query {
	return d.sql.Query("blocked keys", int64(limit), dialect.SQLServerList(lanes))
}

// BlockedAmong implements [backend.Backend].
func (d *SQLServer) BlockedAmong(keys []storage.LaneKey) backend.Query {
	items := make([][]any, len(keys))
	for i, key := range keys {
		items[i] = []any{i, key.Lane, key.Key}
	}
	return d.sql.Query("blocked among", dialect.SQLServerList(items))
}

// Remaining implements [backend.Backend].
func (d *SQLServer) Remaining(limit int) backend.Query {
	return d.sql.Query("remaining", int64(limit))
}

// Purge implements [backend.Backend].
func (d *SQLServer) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	purged, err = d.change(ctx, d.sql.Query("purge", int64(limit), -millis(retention)))
	if err != nil {
		return 0, until, err
	}
	kept := -millis(backend.IDsKept(retention))
	ids, err := backend.Lines(ctx, d.db, d.sql.Query("old ids", int64(limit), kept))
	if err != nil || len(ids) == 0 {
		return purged, until, err
	}
	_, err = d.change(ctx, d.sql.Query("delete ids", dialect.SQLServerList(ids), kept))
	return max(purged, len(ids)), until, err
}

// Claim implements [backend.Backend]. Its statement has an index hint: with another index the server
// would sort the rows, and would lock all of them before it returns the first one.
func (d *SQLServer) Claim(ctx context.Context, claim storage.ClaimRequest) ([]storage.Row, error) {
	index := "claim_id"
	if claim.Pick == storage.Priority {
		index = "claim_priority"
	}
	var a args
	where := d.sql.Text("by rows") + " AND claimed_until IS NULL"
	limit, order, size := a.add(int64(claim.Limit)), backend.ClaimOrder(claim.Pick), d.sql.Text("size")
	if len(claim.Topics) > 0 {
		where += " AND " + among(&a, "topic", claim.Topics)
	}
	if len(claim.Except) > 0 {
		where += " AND NOT (" + among(&a, "topic", claim.Except) + ")"
	}
	relay, token, ttl := a.add(claim.Relay), a.add(claim.Token), a.add(millis(claim.TTL))
	return backend.ReadRows(ctx, d.db, a.query(
		d.sql.Text("read committed"),
		"WITH picked AS (",
		"    SELECT TOP ("+limit+") t.*, "+size+" AS size FROM "+d.table.Pending+" AS t WITH (INDEX("+d.table.IndexName(index)+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE "+where+" ORDER BY "+order+"),",
		"fitting AS (SELECT *, sum(size) OVER (ORDER BY "+order+" ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)",
		"UPDATE fitting SET claimed_by = "+relay+", claim_token = "+token+", claimed_until = DATEADD(MILLISECOND, "+ttl+" % 1000, DATEADD(SECOND, "+ttl+" / 1000, SYSUTCDATETIME()))",
		"OUTPUT "+strings.ReplaceAll(d.sql.Text("hot row"), "t.", "inserted."),
		"WHERE bytes_before < "+a.add(backend.MostBytes(claim))))
}

// Extend implements [backend.Backend].
func (d *SQLServer) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return backend.IDs(ctx, d.db, d.sql.Query("extend", token, dialect.SQLServerList(ids), millis(ttl)))
}

// Reclaim implements [backend.Backend].
func (d *SQLServer) Reclaim(ctx context.Context, limit int) (int, error) {
	freed, err := d.change(ctx, d.sql.Query("free ended claims", int64(limit)))
	if err != nil {
		return 0, err
	}
	back, err := d.change(ctx, d.sql.Query("bring back", int64(limit)))
	return freed + back, err
}
