// Package postgres is the [backend.Backend] of PostgreSQL 13 and later. Its
// statements stand in postgres.sql; those that depend on what is asked for are built
// in the files read.go, settle.go, rows.go and operate.go, each in one place.
package postgres

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed postgres.sql
var file string

// Postgres is a table in PostgreSQL.
type Postgres struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	reader  backend.Reader // nil for database/sql
	sql     backend.Statements
}

var _ backend.Backend = (*Postgres)(nil)

// New returns the backend. The reader, if it isn't nil, reads pages.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table, reader backend.Reader) *Postgres {
	return &Postgres{db, d, table, reader, backend.ParseStatements(file, table, map[string]string{"words": words})}
}

// words are what the texts in conditions that are dear are compared with.
var words = "{" + strings.Repeat("x,", 99) + "x}"

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// Traits implements [backend.Backend].
func (p *Postgres) Traits() backend.Traits {
	return backend.Traits{
		Tx: readCommitted, Claims: 2, Frontier: backend.Snapshots,
		Queries: backend.Queries{
			ClaimMode: p.sql.Query("claim mode"), Members: p.sql.Query("members"), Deregister: p.sql.Query("deregister"), PurgeRelays: p.sql.Query("purge relays"),
			Journals: p.sql.Query("journals"), Marks: p.sql.Query("marks"), LastID: p.sql.Query("last id"),
			FreeRow: p.sql.Query("a free row", true), ExpiredRow: p.sql.Query("an expired row", true),
			Status: backend.StatusQueries{
				Mode: p.sql.Query("claim mode"), Counts: p.sql.Query("counts", int64(backend.CountedDone)), Oldest: p.sql.Query("oldest"),
				Topics: p.sql.Query("topics", int64(backend.SampledTopics)), Relays: p.sql.Query("list relays"), Leased: p.sql.Query("lanes leased"),
			},
		},
	}
}

// args are those of a statement that is built. Arrays go as text, which every driver
// sends.
type args []any

// add returns the placeholder for a value, cast to the type.
func (a *args) add(value any, as string) string {
	*a = append(*a, value)
	return "$" + strconv.Itoa(len(*a)) + "::" + as
}

// query joins the text with the arguments that were added.
func (a *args) query(sql string) backend.Query { return backend.Query{SQL: sql, Args: *a} }

// timestamp is the form of times in arguments. The zero time is before all others.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.999999+00") }

// inTx works in a transaction that doesn't wait long for locks.
func (p *Postgres) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, p.db, readCommitted, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, p.sql.Query("bound waiting")); err != nil {
			return err
		}
		return work(tx)
	})
}

// SetClaimMode implements [backend.Backend].
func (p *Postgres) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return p.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, p.sql, p.dialect, p.table, claim, p.sql.Query("set claim mode", string(claim)))
	})
}

// Heartbeat implements [backend.Backend]. It begins an epoch where there is none.
func (p *Postgres) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	const noEpoch = "-" // what the epoch is called before it has begun
	var name string
	query := p.sql.Query("heartbeat", self.Name, self.Host, self.Version, string(self.Claim), ttl.Microseconds())
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
func (p *Postgres) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) ([]storage.Grant, uint64, error) {
	return backend.Grants(ctx, p.db, p.sql.Query("acquire", int64(count), relay, ttl.Microseconds()))
}

// ChangeLeases implements [backend.Backend]. The statements have the names of the kinds.
func (p *Postgres) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) ([]storage.Lease, uint64, error) {
	query := p.sql.Query(string(change.Kind),
		bind.PostgresArray(backend.Column(leases, func(l *backend.Lease) int { return l.Lane })),
		bind.PostgresArray(backend.Column(leases, func(l *backend.Lease) int64 { return l.Fence })),
		bind.PostgresArray(backend.Column(leases, func(l *backend.Lease) string { return l.Marks })),
		bind.PostgresArray(backend.Column(leases, func(l *backend.Lease) bool { return l.Calm })),
		bind.PostgresArray(backend.Column(leases, func(l *backend.Lease) string { return l.Journal })),
		change.Relay)
	switch change.Kind {
	case backend.Renew:
		query.Args = append(query.Args, change.Epoch, change.TTL.Microseconds())
	case backend.Release:
		query.Args = append(query.Args, change.Epoch)
	}
	return backend.Leases(ctx, p.db, query)
}

// BeginLanes implements [backend.Backend].
func (p *Postgres) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	wrong, err := backend.Lines(ctx, p.db, p.sql.Query("ids out of order"))
	if err != nil {
		return backend.FirstLine{}, err
	}
	if len(wrong) > 0 {
		return backend.FirstLine{}, fmt.Errorf("the sequence of the ids has %s, with which a message could be passed over for good: run ALTER SEQUENCE … CACHE 1 INCREMENT BY 1 NO CYCLE, and GRANT SELECT on it, or claim by rows", strings.Join(wrong, ", "))
	}
	first, err := p.Read(ctx, backend.Read{}, nil)
	if err != nil {
		return first, fmt.Errorf("read the server's epoch (of the primary, as no standby will do): %w", err)
	}
	return first, nil
}

// Purge implements [backend.Backend].
func (p *Postgres) Purge(ctx context.Context, retention time.Duration, limit int, since time.Time) (purged int, until time.Time, err error) {
	from := "-infinity"
	if !since.IsZero() {
		from = timestamp(since)
	}
	query := p.sql.Query("purge", retention.Microseconds(), from, int64(limit), true)
	err = p.inTx(ctx, func(tx *sql.Tx) error { return backend.One(ctx, tx, query, &purged, &until) })
	if err != nil {
		return 0, time.Time{}, err
	}
	return purged, until, nil
}
