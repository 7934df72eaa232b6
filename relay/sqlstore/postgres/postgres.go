// Package postgres is the [backend.Backend] of PostgreSQL 13 and later. Its
// statements stand in postgres.sql; those that depend on what is asked for are built
// in the files read.go, settle.go, rows.go and operate.go, each in one place.
package postgres

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
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
	return backend.Traits{Tx: readCommitted, Claims: 2, Frontier: backend.Snapshots}
}

// ClaimMode implements [backend.Members].
func (p *Postgres) ClaimMode(ctx context.Context) (mode relay.Claim, err error) {
	err = backend.One(ctx, p.db, p.sql.Query("claim mode"), &mode)
	return mode, err
}

// SetClaimMode implements [backend.Members].
func (p *Postgres) SetClaimMode(ctx context.Context, claim relay.Claim) error {
	return p.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, p.dialect, p.table, claim, backend.ModeChange{
			Lock:   p.sql.Query("lock claim mode"),
			Others: p.sql.Query("relays that claim another way", string(claim)),
			Set:    p.sql.Query("set claim mode", string(claim)),
			Forget: []backend.Query{p.sql.Query("lock lanes"), p.sql.Query("forget leases"), p.sql.Query("forget claims")},
		})
	})
}

// inTx works in a transaction that doesn't wait long for locks.
func (p *Postgres) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, p.db, readCommitted, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, p.sql.Query("bound waiting")); err != nil {
			return err
		}
		return work(tx)
	})
}

// Heartbeat implements [backend.Members]. It begins an epoch where there is none.
func (p *Postgres) Heartbeat(ctx context.Context, self relay.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	for {
		var name string
		query := p.sql.Query("heartbeat", self.Name, self.Host, self.Version, string(self.Claim), ttl.Microseconds())
		err := backend.All(ctx, p.db, query, func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
		if err != nil || !beat.Stored {
			return beat, err
		}
		if beat.Epoch != noEpoch {
			break
		}
		if _, err := backend.Exec(ctx, p.db, p.sql.Query("begin epoch")); err != nil {
			return beat, err
		}
	}
	var name string
	err = backend.All(ctx, p.db, p.sql.Query("members"), func() { beat.Alive = append(beat.Alive, name) }, &name)
	return beat, err
}

// noEpoch is what the epoch is called before it has begun.
const noEpoch = "-"

// Deregister implements [backend.Members].
func (p *Postgres) Deregister(ctx context.Context, name string) error {
	_, err := backend.ExecTx(ctx, p.db, readCommitted, p.sql.Query("deregister", name))
	return err
}

// Acquire implements [backend.Lanes].
func (p *Postgres) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) ([]relay.Grant, uint64, error) {
	return backend.Grants(ctx, p.db, p.sql.Query("acquire", int64(count), relay, ttl.Microseconds()))
}

// Renew implements [backend.Lanes].
func (p *Postgres) Renew(ctx context.Context, relay, epoch string, leases []backend.Lease, ttl time.Duration) ([]relay.Lease, uint64, error) {
	return p.change(ctx, "renew", relay, leases, epoch, ttl.Microseconds())
}

// Release implements [backend.Lanes].
func (p *Postgres) Release(ctx context.Context, relay, epoch string, leases []backend.Lease) ([]relay.Lease, uint64, error) {
	return p.change(ctx, "release", relay, leases, epoch)
}

// WriteJournal implements [backend.Lanes].
func (p *Postgres) WriteJournal(ctx context.Context, relay string, leases []backend.Lease) ([]relay.Lease, uint64, error) {
	return p.change(ctx, "write journal", relay, leases)
}

func (p *Postgres) change(ctx context.Context, name, relay string, leases []backend.Lease, more ...any) ([]relay.Lease, uint64, error) {
	args := []any{
		intArray(leases, func(l *backend.Lease) int64 { return int64(l.Lane) }),
		intArray(leases, func(l *backend.Lease) int64 { return l.Fence }),
		textArray(leases, func(l *backend.Lease) string { return l.Marks }),
		boolArray(leases, func(l *backend.Lease) bool { return l.Calm }),
		textArray(leases, func(l *backend.Lease) string { return l.Journal }),
		relay,
	}
	return backend.Leases(ctx, p.db, p.sql.Query(name, append(args, more...)...))
}

// Journals implements [backend.Lanes].
func (p *Postgres) Journals(ctx context.Context) ([]relay.Journal, error) {
	return backend.Journals(ctx, p.db, p.sql.Query("journals"))
}

// Marks implements [backend.Lanes].
func (p *Postgres) Marks(ctx context.Context) (map[int]relay.Marks, error) {
	return backend.Marks(ctx, p.db, p.sql.Query("marks"))
}

// BeginLanes implements [backend.Pages].
func (p *Postgres) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	wrong, err := backend.Lines(ctx, p.db, p.sql.Query("ids out of order"))
	if err != nil {
		return backend.FirstLine{}, err
	}
	if len(wrong) > 0 {
		return backend.FirstLine{}, fmt.Errorf("the sequence of the ids has %s, with which a message could be passed over for good: run ALTER SEQUENCE … CACHE 1 INCREMENT BY 1 NO CYCLE, and GRANT SELECT on it, or claim by rows", strings.Join(wrong, ", "))
	}
	first, err := p.FirstLine(ctx)
	if err != nil {
		return first, fmt.Errorf("read the server's epoch (of the primary, as no standby will do): %w", err)
	}
	return first, nil
}

// Purge implements [backend.Settling].
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
	_, err = backend.ExecTx(ctx, p.db, readCommitted, p.sql.Query("purge relays"))
	return purged, until, err
}

// Status implements [backend.Operating].
func (p *Postgres) Status(ctx context.Context) (relay.Status, error) {
	return backend.ReadStatus(ctx, p.db, backend.StatusQueries{
		Mode: p.sql.Query("claim mode"), Counts: p.sql.Query("counts", int64(backend.CountedDone)), Oldest: p.sql.Query("oldest"),
		Topics: p.sql.Query("topics", int64(backend.SampledTopics)), Relays: p.sql.Query("list relays"), Leased: p.sql.Query("lanes leased"),
	})
}
