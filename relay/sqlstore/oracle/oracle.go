// Package oracle implements [backend.Backend] for Oracle Database 12.2 and later. Fixed statements
// are in oracle.sql; the Go files build the statements that depend on the request. The
// package's tests compare the statements with testdata and need no server.
// outbox/dialect/ORACLE.md explains the statements.
package oracle

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
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed oracle.sql
var file string

// Oracle is the backend of a table in Oracle Database.
type Oracle struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	sql     backend.Statements
}

var _ backend.TransactionLister = (*Oracle)(nil)

// New returns the backend of a table.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *Oracle {
	return &Oracle{db, d, table, backend.ParseStatements(file, table, map[string]string{
		"locks": table.Index("locks"), "index claim_until": table.IndexName("claim_until"),
		"owner": dialect.OracleOwner(table), "trigger": dialect.OracleName(table.Name + "_begin"),
	})}
}

// Capabilities implements [backend.Backend]. It requests no isolation level, because go-ora rejects
// every explicit level. Transactions have the session's level, which is READ COMMITTED by default.
// The statements are correct at other levels, too, but then more of them fail and are repeated.
func (d *Oracle) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkPositions,
		Pending: d.table.Pending, Statements: d.sql,
		Queries: backend.Queries{
			Members:     d.sql.Query("members"),
			PurgeRelays: d.sql.Query("purge relays"),
			LastID:      d.sql.Query("last id"),
			Status: backend.StatusQueries{
				Counts: d.sql.Query("counts", int64(backend.Counted), int64(backend.Counted), int64(backend.Counted), int64(backend.Counted)), Claimed: d.sql.Query("count claimed"), Estimates: d.sql.Query("estimates"), Oldest: d.sql.Query("oldest"), OldestRetry: d.sql.Query("oldest retry"), Held: d.sql.Query("held parked"),
				Topics: d.sql.Query("topics", int64(backend.SampledTopics)), Relays: d.sql.Query("list relays"), Leased: d.sql.Query("lanes leased"),
			},
		},
	}
}

// args collects the arguments of a statement.
type args struct{ dialect.OracleArgs }

func (a *args) query(lines ...string) backend.Query {
	return backend.Query{SQL: strings.Join(lines, "\n"), Args: a.Args}
}

// given returns a FROM item g that has the items as rows with the given columns.
func given[T any](a *args, items []T, columns string) string {
	return dialect.OracleGiven(&a.OracleArgs, "g", items, columns)
}

// list returns a subquery with the numbers, for IN.
func list[T int | int64](a *args, values []T) string {
	return "(SELECT j.id FROM " + dialect.OracleGiven(&a.OracleArgs, "j", values, "id NUMBER PATH '$'") + ")"
}

// texts returns a subquery with the bytes of the texts, for IN.
func (a *args) texts(values []string) string {
	return "(SELECT " + bytes("j.text") + " FROM " + dialect.OracleGiven(&a.OracleArgs, "j", values, "text VARCHAR2(255) PATH '$'") + ")"
}

// bytes returns an expression for the bytes of a text. Comparisons of bytes don't depend on the session's settings.
func bytes(text string) string { return "NLSSORT(" + text + ", 'NLS_SORT=BINARY')" }

func same(a, b string) string { return bytes(a) + " = " + bytes(b) }

const now = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"

// in returns an expression for the present time plus a duration.
func (a *args) in(by time.Duration) string {
	return now + " + NUMTODSINTERVAL(" + a.Add(by.Microseconds()) + " / 1000000, 'SECOND')"
}

func (a *args) timestamp(at time.Time) string {
	return "TO_TIMESTAMP(" + a.Add(at.UTC().Format("2006-01-02 15:04:05.000000")) + ", 'YYYY-MM-DD HH24:MI:SS.FF6')"
}

// inTx runs the function `work` in a transaction that begins with the statement "begin changing". This statement takes
// a lock, so only one such transaction can run at a time.
func (d *Oracle) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, d.db, nil, []backend.Query{d.sql.Query("begin changing")}, work)
}

// SetClaimMode implements [backend.Backend].
func (d *Oracle) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return d.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, d.sql, d.dialect, d.table, claim, d.sql.Query("set claim mode", string(claim)))
	})
}

// Heartbeat implements [backend.Backend].
func (d *Oracle) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	var epoch sql.NullString
	claim := string(self.Claim)
	err = backend.InTx(ctx, d.db, nil, []backend.Query{
		d.sql.Query("share claim mode"),
		d.sql.Query("heartbeat", self.Name, self.Host, self.Version, claim, ttl.Microseconds(), self.Config.Text(), claim),
	}, func(tx *sql.Tx) error {
		return backend.All(ctx, tx, d.sql.Query("heartbeat was stored", self.Name, claim), func() { beat.Stored = true }, &name, &beat.XID, &epoch)
	})
	beat.Epoch = epoch.String
	return beat, err
}

// Acquire implements [backend.Backend].
func (d *Oracle) Acquire(ctx context.Context, relay string, count int, ttl time.Duration, step int64) (grants []storage.Grant, xid uint64, err error) {
	acquire := d.sql.Query("acquire", int64(count), relay, relay, step, ttl.Microseconds())
	err = backend.InTx(ctx, d.db, nil, []backend.Query{acquire}, func(tx *sql.Tx) error {
		grants, xid, err = backend.Grants(ctx, tx, d.sql.Query("acquired"))
		return err
	})
	return grants, xid, err
}

// ChangeLeases implements [backend.Backend]. It runs a PL/SQL block with an UPDATE for each lease,
// because the texts in a list of leases would have a maximum length.
func (d *Oracle) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) (held []storage.Lease, xid uint64, err error) {
	var a args
	marks := func(given string) string { // the given marks if they were made in this epoch, otherwise the stored marks
		if change.Epoch == "" {
			return a.Add(given)
		}
		return "CASE WHEN " + d.sql.Text("server") + " = " + a.Add(change.Epoch) + " THEN " + a.Add(given) + " ELSE marks END"
	}
	block := "DECLARE\n    " + d.sql.Text("stamp") + "\nBEGIN\n"
	for _, lease := range leases {
		set := ""
		switch change.Kind {
		case backend.Renew:
			set = "until = " + a.in(change.TTL) + ", marks = " + marks(lease.Marks)
			if lease.Calm {
				set += ", crashes = 0, journal = NULL"
			}
		case backend.Release:
			set = "owner = NULL, until = NULL, marks = " + marks(lease.Marks) + ", journal = NULL, crashes = 0"
		case backend.WriteJournal:
			set = "journal = " + a.Add(lease.Journal)
		}
		block += "    UPDATE " + d.table.Lanes + " SET " + set + ", stamp = this_transaction" +
			"\n    WHERE lane = " + a.Add(int64(lease.Lane)) + " AND fence = " + a.Add(lease.Fence) + " AND owner = " + a.Add(change.Relay) + ";\n"
	}
	err = backend.InTx(ctx, d.db, nil, []backend.Query{a.query(block + "END;")}, func(tx *sql.Tx) error {
		held, xid, err = backend.Leases(ctx, tx, d.sql.Query("changed leases"))
		return err
	})
	return held, xid, err
}

// ListOpen implements [backend.TransactionLister].
func (d *Oracle) ListOpen(ctx context.Context, _ string) (backend.OpenList, error) {
	return backend.ReadOpenList(ctx, d.db, d.sql.Query("open transactions"))
}

// Grant implements [backend.TransactionLister]. It names both views. If a user lacks the privilege
// on a view, the database reports that the view doesn't exist.
func (d *Oracle) Grant() string {
	return "SELECT ON sys.gv_$transaction (and the same ON sys.v_$database)"
}

// Read implements [backend.Backend].
func (d *Oracle) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, d.db, nil, d.page(page), take)
	return line, err
}

// page returns the query of a read. The query limits the rows before it sorts them, so that it
// sorts only a few rows.
func (d *Oracle) page(read backend.Read) backend.Query {
	var a args
	rows := d.upTo(&a, "SELECT t.*, p.place FROM ("+d.ranges(&a, read.Positions, read.Limit, cmp.Or(read.Share, read.Limit))+") p\n    JOIN "+d.table.Pending+" t ON t.ROWID = p.rid",
		"t.place, t.id", read.MaxBytes)
	const columns = "id, lane, message_id, topic, message_key, sinks, payload, payload_text, headers, available_at, expires_at, priority, attempts, crashes, created_at"
	return a.query(
		d.sql.Text("as bytes"),
		"SELECT t.line, "+d.sql.Text("hot row"),
		ordered("SELECT -1 AS place, "+d.sql.Text("given")+" || ' 0 0 0 ' || "+d.sql.Text("server")+" AS line,"+
			"\n    "+d.sql.Text("no row")+" FROM dual"+
			"\nUNION ALL"+
			"\nSELECT t.place, NULL, "+backend.Of("t", columns)+"\n"+rows,
			"place, id", ""))
}

// ordered returns a FROM clause with rows t, which the server sorts before it computes
// the selected expressions. ROWNUM separates the two steps, so that the server doesn't
// sort the LOBs that the function `as_bytes` makes.
func ordered(rows, order, where string) string {
	return "FROM (SELECT r.*, ROWNUM AS n FROM (\n" + rows + "\nORDER BY " + order + ") r" + where + ") t"
}

// ranges returns a SELECT that finds the pending rows at each position in turn. Its columns are
// `place`, the position's index in the list, and `rid`, the row's ROWID. Conditions on ROWNUM end the scan of
// a position's range after `share` rows, and the whole SELECT after `limit` rows.
func (d *Oracle) ranges(a *args, positions []storage.Position, limit, share int) string {
	if len(positions) == 0 {
		return "SELECT 0 AS place, h.ROWID AS rid FROM " + d.table.Pending + " h WHERE 1 = 0"
	}
	parts := make([]string, len(positions))
	for i, p := range positions {
		parts[i] = "SELECT " + strconv.Itoa(i) + " AS place, rid FROM (SELECT /*+ INDEX_ASC(h " + d.table.IndexName("lane_id") + ") */ h.ROWID AS rid FROM " + d.table.Pending + " h" +
			" WHERE h.lane = " + a.Add(int64(p.Lane)) + " AND h.id > " + a.Add(p.After) + " AND h.id <= " + a.Add(p.Until)
		if p.Key != "" {
			parts[i] += " AND " + same("h.message_key", a.Add(p.Key))
		}
		parts[i] += " ORDER BY h.id) WHERE ROWNUM <= " + a.Add(int64(share))
	}
	return "\n    SELECT place, rid FROM (\n    " + strings.Join(parts, "\n    UNION ALL\n    ") + "\n    ) WHERE ROWNUM <= " + a.Add(int64(limit))
}

// upTo returns a FROM clause with the rows up to the one at which the total size of the payloads reaches maxBytes.
func (d *Oracle) upTo(a *args, rows, order string, maxBytes int) string {
	if maxBytes <= 0 {
		return "FROM (" + rows + ") t"
	}
	size := d.sql.Text("size")
	return "FROM (SELECT t.*, SUM(" + size + ") OVER (ORDER BY " + order + " ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
		"\nFROM (" + rows + ") t) t WHERE t.bytes_before < " + a.Add(int64(maxBytes))
}

// Candidates implements [backend.Backend].
func (d *Oracle) Candidates(positions []storage.Position, _ []string, limit int) backend.Query {
	var a args
	return a.query("SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, "+d.sql.Text("size"),
		"FROM ("+d.ranges(&a, positions, limit, limit)+") p",
		"JOIN "+d.table.Pending+" t ON t.ROWID = p.rid ORDER BY p.place, t.id")
}

// Pick implements [backend.Backend].
func (d *Oracle) Pick(rows []storage.RowID, held bool) backend.Query {
	columns, from := d.sql.Text("hot row"), d.table.Pending+" t ON t.id = g.id AND t.lane = g.lane"
	if held {
		columns, from = d.sql.Text("held row"), d.table.Held+" t ON t.id = g.id AND t.lane = g.lane AND t.state <> 'error'"
	}
	var a args
	places := backend.Column(rows, func(row *storage.RowID) []int64 { return []int64{int64(row.Lane), row.ID} })
	return a.query(
		d.sql.Text("as bytes"),
		"SELECT "+columns,
		"FROM "+given(&a, places, "lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]'"),
		"JOIN "+from)
}

// AttemptLogs implements [backend.Backend].
func (d *Oracle) AttemptLogs(rows []storage.RowID, held bool) backend.Query {
	from := d.table.Pending
	if held {
		from = d.table.Held
	}
	var a args
	places := backend.Column(rows, func(row *storage.RowID) []int64 { return []int64{int64(row.Lane), row.ID} })
	return a.query(
		"SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log",
		"FROM "+given(&a, places, "lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]'"),
		"JOIN "+from+" t ON t.id = g.id AND t.lane = g.lane AND t.attempt_log IS NOT NULL")
}

// Due implements [backend.Backend].
func (d *Oracle) Due(lanes []int, after storage.DueCursor, limit, maxBytes int) backend.Query {
	var a args
	dueAt, dueID := d.sql.Text("due at"), d.sql.Text("due id")
	rows := "SELECT * FROM (SELECT t.* FROM " + d.table.Held + " t" +
		"\n    WHERE " + dueAt + " <= " + now + " AND t.lane IN " + list(&a, lanes) +
		"\n        AND " + dueAt + " >= " + a.timestamp(after.At) + " AND (" + dueAt + " > " + a.timestamp(after.At) + " OR " + dueID + " > " + a.Add(after.ID) + ")" +
		"\n    ORDER BY " + dueAt + ", " + dueID + ") WHERE ROWNUM <= " + a.Add(int64(limit))
	return a.query(
		d.sql.Text("as bytes"),
		"SELECT "+d.sql.Text("held row"),
		ordered("SELECT t.* "+d.upTo(&a, rows, dueAt+", "+dueID, maxBytes), dueAt+", "+dueID, ""))
}

// holding is the beginning of each expression in the index held_retry, which has the rows that block their keys.
const holding = "CASE WHEN t.state = 'retry' OR t.holds > 0"

// BlockedKeys implements [backend.Backend]. Its query uses the index held_retry, whose columns are expressions.
func (d *Oracle) BlockedKeys(lanes []int, limit int) backend.Query {
	var a args
	return a.query(
		"SELECT t.lane, t.message_key, t.topic, t.sinks, t.id FROM "+d.table.Held+" t",
		"WHERE "+holding+" THEN t.lane END IN "+list(&a, lanes)+" AND t.message_key IS NOT NULL AND ROWNUM <= "+a.Add(int64(limit)))
}

// BlockedAmong implements [backend.Backend].
func (d *Oracle) BlockedAmong(keys []storage.LaneKey) backend.Query {
	var a args
	items := backend.Column(keys, func(key *storage.LaneKey) []any { return []any{key.Lane, key.Key} })
	return a.query(
		"SELECT /*+ LEADING(g) USE_NL(t) INDEX(t "+d.table.IndexName("held_retry")+") */ t.lane, MIN(t.message_key), MIN(t.topic), MIN(t.sinks), MIN(t.id)",
		"FROM "+given(&a, items, "lane NUMBER PATH '$[0]', message_key VARCHAR2(255) PATH '$[1]'"),
		"JOIN "+d.table.Held+" t ON "+holding+" THEN t.lane END = g.lane AND "+same(holding+" THEN t.message_key END", "g.message_key"),
		"GROUP BY t.lane, "+bytes("t.message_key")+", "+bytes("t.topic")+", "+bytes("t.sinks"))
}

// Remaining implements [backend.Backend].
func (d *Oracle) Remaining(limit int) backend.Query {
	return d.sql.Query("remaining", int64(limit), int64(limit))
}

// Purge implements [backend.Backend].
func (d *Oracle) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		if purged, err = backend.Exec(ctx, tx, d.sql.Query("purge", -retention.Microseconds(), int64(limit))); err != nil {
			return err
		}
		ids, err := backend.Exec(ctx, tx, d.sql.Query("purge ids", -backend.IDsKept(retention).Microseconds(), int64(limit)))
		purged = max(purged, ids)
		return err
	})
	return purged, until, err
}

// lockFirst returns a PL/SQL block that locks up to `limit` rows of a query, and skips rows that
// are already locked. The block then runs the statement `change` for the locked rows, up to the row at which the total size of the payloads
// reaches the given number of bytes. The block fetches the rows itself: the server locks rows as they are fetched, and a driver might fetch
// too many.
//
// The block first takes one of the 512 locks of lanes; the session's number determines which one.
// A change of the claim mode needs all these locks, so the claim mode that the query sees can't
// change before the commit.
func (d *Oracle) lockFirst(query, limit, bytes, change string) string {
	return `DECLARE
    ` + d.sql.Text("stamp") + `
    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;
    ids numbers;
    sizes numbers;
    fitting PLS_INTEGER := 0;
    bytes_left NUMBER;
    CURSOR free_rows IS ` + query + ` FOR UPDATE SKIP LOCKED;
BEGIN
    FOR locked IN (SELECT lock_id FROM ` + d.table.Index("locks") + ` WHERE lock_id = MOD(SYS_CONTEXT('USERENV', 'SID'), 64 * 8) FOR UPDATE) LOOP NULL; END LOOP;
    OPEN free_rows;
    FETCH free_rows BULK COLLECT INTO ids, sizes LIMIT ` + limit + `;
    CLOSE free_rows;
    bytes_left := ` + bytes + `;
    WHILE fitting < ids.COUNT AND bytes_left > 0 LOOP
        fitting := fitting + 1;
        bytes_left := bytes_left - sizes(fitting);
    END LOOP;
    FORALL i IN 1 .. fitting
        ` + change + `;
END;`
}

// Claim implements [backend.Backend]. After locking a row, it checks again that the row is free.
// The claimed rows get the transaction's number, by which the next statement finds them.
func (d *Oracle) Claim(ctx context.Context, claim storage.ClaimRequest) (claimed []storage.Row, err error) {
	free, index := d.sql.Text("free id"), "claim_id"
	order := free
	switch claim.Pick {
	case storage.Newest:
		order += " DESC"
	case storage.Priority:
		free, index = d.sql.Text("free priority"), "claim_priority"
		order = free + ", " + order
	}
	var a args
	query := "SELECT /*+ INDEX(t " + d.table.IndexName(index) + ") */ id, " + d.sql.Text("size") + " FROM " + d.table.Pending + " t WHERE " + d.sql.Text("by rows") + " AND " + free + " IS NOT NULL"
	if len(claim.Topics) > 0 {
		query += "\n        AND " + bytes("topic") + " IN " + a.texts(claim.Topics)
	}
	if len(claim.Except) > 0 {
		query += "\n        AND " + bytes("topic") + " NOT IN " + a.texts(claim.Except)
	}
	block := d.lockFirst(query+"\n        ORDER BY "+order, a.Add(int64(claim.Limit)), a.Add(backend.MostBytes(claim)),
		"UPDATE "+d.table.Pending+" SET claimed_by = "+a.Add(claim.Relay)+", claim_token = "+a.Add(claim.Token)+
			", claimed_until = "+a.in(claim.TTL)+", claim_stamp = this_transaction\n        WHERE id = ids(i) AND claimed_until IS NULL")
	err = backend.InTx(ctx, d.db, nil, []backend.Query{a.query(block)}, func(tx *sql.Tx) error {
		claimed, err = backend.ReadRows(ctx, tx, d.sql.Query("claimed rows"))
		return err
	})
	return claimed, err
}

// Extend implements [backend.Backend]. It doesn't extend the claims on locked rows. Such rows are
// being settled or handled, and no other relay can claim them meanwhile.
func (d *Oracle) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
	var a, ask args
	query := "SELECT id, 0 FROM " + d.table.Pending + " WHERE " + d.sql.Text("by rows") + " AND id IN " + list(&a, ids) + " AND claim_token = " + a.Add(token)
	block := d.lockFirst(query, a.Add(int64(len(ids))), "1",
		"UPDATE "+d.table.Pending+" SET claimed_until = "+a.in(ttl)+" WHERE id = ids(i) AND claim_token = "+a.Add(token))
	err = backend.InTx(ctx, d.db, nil, []backend.Query{a.query(block)}, func(tx *sql.Tx) error {
		still, err = backend.IDs(ctx, tx, ask.query("SELECT id FROM "+d.table.Pending+" WHERE id IN "+list(&ask, ids)+" AND claim_token = "+ask.Add(token)))
		return err
	})
	return still, err
}

// Reclaim implements [backend.Backend].
func (d *Oracle) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		ids, err := backend.IDs(ctx, tx, d.sql.Query("ended claims", int64(limit)))
		if err != nil || len(ids) == 0 {
			return err
		}
		freed = len(ids)
		var a args
		_, err = backend.Exec(ctx, tx, a.query(
			"UPDATE "+d.table.Pending+" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL, crashes = crashes + 1",
			"WHERE claimed_until < "+now+" AND id IN "+list(&a, ids)))
		return err
	})
	if err != nil {
		return 0, err
	}
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		back, err := backend.Exec(ctx, tx, d.sql.Query("bring back", int64(limit)))
		if err != nil {
			return err
		}
		freed += back
		_, err = backend.Exec(ctx, tx, d.sql.Query("remove what is back"))
		return err
	})
	return freed, err
}
