// Package sqlserver is the [backend.Backend] of SQL Server 2016 and later, and of Azure
// SQL. Its tests compare the statements with testdata; none of them has a server.
package sqlserver

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// SQLServer is a table in SQL Server.
type SQLServer struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	reading string // the isolation level at which a plain SELECT waits for no writer and sees one moment
}

var _ backend.TransactionLister = (*SQLServer)(nil)

// New returns the backend. The dialect is the one that fits the server.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *SQLServer {
	return &SQLServer{db, d, table, dialect.ReadingLevel(d)}
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// Traits implements [backend.Backend].
func (d *SQLServer) Traits() backend.Traits {
	return backend.Traits{
		Tx: readCommitted, Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkPositions,
		Queries: backend.Queries{
			ClaimMode: d.claimMode(), Members: d.members(), Deregister: d.deregister(""), PurgeRelays: d.purgeRelays(),
			Journals: query("SELECT lane, fence, journal FROM " + d.table.Lanes + " WHERE journal IS NOT NULL"),
			Marks:    query("SELECT lane, marks FROM " + d.table.Lanes + " WHERE marks IS NOT NULL ORDER BY lane"), LastID: d.lastID(),
			Status: backend.StatusQueries{
				Mode: d.claimMode(), Counts: d.counts(backend.CountedDone), Oldest: d.oldest(), Topics: d.topics(backend.SampledTopics),
				Relays: d.listRelays(), Leased: d.leased(),
			},
		},
	}
}

// inTx works in a transaction whose wait for locks has a bound, until the connection goes
// back to its pool: who changes the way of claiming may have to lock the table, and
// whoever waits for that lock holds up all producers.
func (d *SQLServer) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, d.db, readCommitted, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, backend.Query{SQL: "SET LOCK_TIMEOUT 3000"}); err != nil {
			return err
		}
		return work(tx)
	})
}

// read lets a SELECT see one moment, and wait for no one. The level ends with the
// batch, also if it fails, where the batch has parameters: without any the driver
// sends it in a way that changes the session, which may be another's next.
func (d *SQLServer) read(a *args, lines ...string) backend.Query {
	if len(a.list) == 0 {
		a.int(0)
	}
	lines = append([]string{"SET TRANSACTION ISOLATION LEVEL " + d.reading + ";"}, lines...)
	lines[len(lines)-1] += ";"
	return a.query(append(lines, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")...)
}

// literal is the name of an object as OBJECT_ID takes it; there are no quotes and
// brackets in it that would have to be doubled.
func literal(table dialect.Table, suffix string) string {
	name := "[" + table.Name + suffix + "]'"
	if table.Schema != "" {
		name = "[" + table.Schema + "]." + name
	}
	return "N'" + name
}

// binary compares texts by their code units, but for blanks at the end.
const binary = "COLLATE Latin1_General_100_BIN2"

func query(lines ...string) backend.Query { return backend.Query{SQL: strings.Join(lines, "\n")} }

// SetClaimMode implements [backend.Members].
func (d *SQLServer) SetClaimMode(ctx context.Context, claim relay.Claim) error {
	return d.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, d.dialect, d.table, claim, backend.ModeChange{
			Lock: d.lockClaimMode(), Others: d.otherRelays(string(claim)), Set: d.setClaimMode(string(claim)), Forget: d.forget(),
		})
	})
}

// Heartbeat implements [backend.Members].
func (d *SQLServer) Heartbeat(ctx context.Context, self relay.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	err = backend.All(ctx, d.db, d.heartbeat(self, ttl), func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
	return beat, err
}

// BeginLanes implements [backend.Pages].
func (d *SQLServer) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	return d.Read(ctx, backend.Read{}, nil)
}

// Read implements [backend.Pages].
func (d *SQLServer) Read(ctx context.Context, page backend.Read, take func(relay.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, d.db, nil, d.page(page), take)
	return line, err
}

// Candidates implements [backend.Pages].
func (d *SQLServer) Candidates(ctx context.Context, positions []relay.Position, except []string, limit int, take func(relay.Candidate) (bool, error)) error {
	return backend.ReadCandidates(ctx, d.db, d.candidates(positions, except, limit), take)
}

// Pick implements [backend.Pages].
func (d *SQLServer) Pick(ctx context.Context, rows []relay.RowID, held bool) ([]relay.Row, error) {
	query := d.pickHot(rows)
	if held {
		query = d.pickHeld(rows)
	}
	found, err := backend.ReadRows(ctx, d.db, query)
	for i := range found {
		found[i].Held = held
	}
	return found, err
}

// Settle implements [backend.Settling]. It is one batch.
func (d *SQLServer) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []relay.Settlement) (backend.Settled, error) {
	query := d.settleLanes
	if settlements[0].Token != "" {
		query = d.settleRows
	}
	if tx != nil {
		return backend.ReadSettled(ctx, tx, query(relay, keep, settlements))
	}
	return backend.ReadSettled(ctx, d.db, query(relay, keep, settlements))
}

// Purge implements [backend.Settling].
func (d *SQLServer) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	purged, err = d.change(ctx, d.purge(retention, limit))
	return purged, until, err
}

// change runs a statement in a transaction, and counts its rows.
func (d *SQLServer) change(ctx context.Context, query backend.Query) (affected int, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		affected, err = backend.Exec(ctx, tx, query)
		return err
	})
	return affected, err
}

// Claim implements [backend.Rows].
func (d *SQLServer) Claim(ctx context.Context, request relay.ClaimRequest) ([]relay.Row, error) {
	return backend.ReadRows(ctx, d.db, d.claim(request))
}

// Reclaim implements [backend.Rows].
func (d *SQLServer) Reclaim(ctx context.Context, limit int) (int, error) {
	freed, err := d.change(ctx, d.freeExpired(limit))
	if err != nil {
		return 0, err
	}
	back, err := d.change(ctx, d.bringBack(limit))
	return freed + back, err
}

// Grant implements [backend.TransactionLister]. Every user may see what ListOpen asks for;
// should a server refuse it, this is the right to look at a database's state.
func (d *SQLServer) Grant() string { return "VIEW DATABASE STATE" }

// ListOpen implements [backend.TransactionLister]. It goes by rowversions, which one
// counter of the database gives out: each inserted row takes one, as its table has such a
// column. outbox/dialect/SQLSERVER.md has the argument. The lowest that is open is one
// above the counter if none is.
func (d *SQLServer) ListOpen(ctx context.Context, _ string) (backend.OpenList, error) {
	return backend.ReadOpenList(ctx, d.db, query(
		"DECLARE @number bigint = CONVERT(bigint, @@DBTS);",
		"DECLARE @server nvarchar(400) = "+server+";",
		"SELECT N'number', CONVERT(nvarchar(20), @number)",
		"UNION ALL SELECT N'open', CONVERT(nvarchar(20), CONVERT(bigint, MIN_ACTIVE_ROWVERSION()))",
		"UNION ALL SELECT N'server', @server"))
}
