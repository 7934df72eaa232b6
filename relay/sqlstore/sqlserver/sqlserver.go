// Package sqlserver is the [backend.Backend] of SQL Server 2016 and later, and of Azure
// SQL. Its statements stand in sqlserver.sql; those that depend on what is asked for are built
// in the files read.go, settle.go, rows.go and operate.go. Its tests compare the statements
// with testdata; none of them has a server.
package sqlserver

import (
	"context"
	"database/sql"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed sqlserver.sql
var file string

// SQLServer is a table in SQL Server.
type SQLServer struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	sql     backend.Statements
}

var _ backend.TransactionLister = (*SQLServer)(nil)

// New returns the backend. The dialect is the one that fits the server.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *SQLServer {
	words := map[string]string{"reading": dialect.ReadingLevel(d), "object": dialect.SQLServerObject(table, "")}
	for _, suffix := range []string{"id", "held", "lanes", "done"} {
		words["object "+suffix] = dialect.SQLServerObject(table, "_"+suffix)
	}
	for _, suffix := range []string{"lanes_fence", "held_retry", "held_due", "done_finished", "claim_until"} {
		words["index "+suffix] = table.IndexName(suffix)
	}
	return &SQLServer{db, d, table, backend.ParseStatements(file, table, words)}
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// none is the argument of a batch that needs none; see "at one moment" in sqlserver.sql.
const none = int64(0)

// Traits implements [backend.Backend].
func (d *SQLServer) Traits() backend.Traits {
	return backend.Traits{
		Tx: readCommitted, Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkPositions,
		Queries: backend.Queries{
			ClaimMode: d.sql.Query("claim mode"), Members: d.sql.Query("members", none), Deregister: d.sql.Query("deregister"),
			PurgeRelays: d.sql.Query("purge relays", -millis(24*time.Hour)),
			Journals:    d.sql.Query("journals"), Marks: d.sql.Query("marks"), LastID: d.sql.Query("last id"),
			Status: backend.StatusQueries{
				Mode: d.sql.Query("claim mode"), Counts: d.sql.Query("counts", int64(backend.CountedDone)), Oldest: d.sql.Query("oldest", none),
				Topics: d.sql.Query("topics", int64(backend.SampledTopics)), Relays: d.sql.Query("list relays", none), Leased: d.sql.Query("lanes leased", none),
			},
		},
	}
}

// args are those of a statement that is built.
type args []any

// add returns the placeholder for a value.
func (a *args) add(value any) string {
	*a = append(*a, value)
	return "@p" + strconv.Itoa(len(*a))
}

func (a *args) query(lines ...string) backend.Query {
	return backend.Query{SQL: strings.Join(lines, "\n"), Args: *a}
}

// millis rounds up.
func millis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// timestamp is any time since the year 1.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.0000000") }

// binary compares texts by their code units, but for blanks at the end.
const binary = "COLLATE Latin1_General_100_BIN2"

// inTx works in a transaction that doesn't wait long for locks.
func (d *SQLServer) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, d.db, readCommitted, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, d.sql.Query("bound waiting")); err != nil {
			return err
		}
		return work(tx)
	})
}

// change runs a statement in such a transaction, and counts its rows.
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
	query := d.sql.Query("heartbeat", self.Name, self.Host, self.Version, string(self.Claim), millis(ttl))
	err = backend.All(ctx, d.db, query, func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
	return beat, err
}

// Acquire implements [backend.Backend].
func (d *SQLServer) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) ([]storage.Grant, uint64, error) {
	return backend.Grants(ctx, d.db, d.sql.Query("acquire", int64(count), relay, millis(ttl)))
}

// ChangeLeases implements [backend.Backend]. The statements have the names of the kinds.
func (d *SQLServer) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) ([]storage.Lease, uint64, error) {
	query := d.sql.Query(string(change.Kind),
		bind.SQLServerList(backend.Column(leases, func(l *backend.Lease) []any { return []any{l.Lane, l.Fence, l.Marks, l.Calm, l.Journal} })), change.Relay)
	switch change.Kind {
	case backend.Renew:
		query.Args = append(query.Args, change.Epoch, millis(change.TTL))
	case backend.Release:
		query.Args = append(query.Args, change.Epoch)
	}
	return backend.Leases(ctx, d.db, query)
}

// Purge implements [backend.Backend].
func (d *SQLServer) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	purged, err = d.change(ctx, d.sql.Query("purge", int64(limit), -millis(retention)))
	return purged, until, err
}

// Grant implements [backend.TransactionLister]. Every user may see what ListOpen asks for;
// should a server refuse it, this is the right to look at a database's state.
func (d *SQLServer) Grant() string { return "VIEW DATABASE STATE" }

// ListOpen implements [backend.TransactionLister].
func (d *SQLServer) ListOpen(ctx context.Context, _ string) (backend.OpenList, error) {
	return backend.ReadOpenList(ctx, d.db, d.sql.Query("open transactions"))
}
