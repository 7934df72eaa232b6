// Package sqlite is the [backend.Backend] of SQLite 3.35 and later. Its statements
// stand in sqlite.sql; those that depend on what is asked for are built in the files
// read.go, settle.go, rows.go and operate.go.
package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed sqlite.sql
var file string

// SQLite is a table in SQLite.
type SQLite struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	sql     backend.Statements
}

var _ backend.Backend = (*SQLite)(nil)

// New returns the backend.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *SQLite {
	return &SQLite{db, d, table, backend.ParseStatements(file, table, map[string]string{
		"sequences": table.Beside("sqlite_sequence"), "name": table.Name, "held_retry": table.IndexName("held_retry"),
	})}
}

// Traits implements [backend.Backend]. The table lies in the order of ids, and the rows
// of one lane are far from each other: reading lane after lane would touch, and settling
// would write, a page for every row.
func (s *SQLite) Traits() backend.Traits {
	return backend.Traits{
		OneWriter: true, Claims: 1, Frontier: backend.OneWriterAtATime, Walk: backend.WalkByID,
		Queries: backend.Queries{
			ClaimMode: s.sql.Query("claim mode"), Members: s.sql.Query("members"), Deregister: s.sql.Query("deregister"), PurgeRelays: s.sql.Query("purge relays"),
			Journals: s.sql.Query("journals"), Marks: s.sql.Query("marks"), LastID: s.sql.Query("last id"),
			FreeRow: s.sql.Query("a free row"), ExpiredRow: s.sql.Query("an expired row"),
			Status: backend.StatusQueries{
				Mode: s.sql.Query("claim mode"), Counts: s.sql.Query("counts", int64(backend.CountedDone), int64(backend.CountedDone)), Oldest: s.sql.Query("oldest"),
				Topics: s.sql.Query("topics", int64(backend.SampledTopics)), Relays: s.sql.Query("list relays"), Leased: s.sql.Query("lanes leased"),
			},
		},
	}
}

// inTx works in a transaction that has the lock for writing.
func (s *SQLite) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, s.db, nil, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, s.sql.Query("begin writing")); err != nil {
			return err
		}
		return work(tx)
	})
}

// seconds is a time from now.
func seconds(by time.Duration) string { return fmt.Sprintf("%+.3f seconds", by.Seconds()) }

// timeFormat is the form of times in the tables; always in UTC, so that they compare as
// text.
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
	query := s.sql.Query("heartbeat", self.Name, self.Host, self.Version, string(self.Claim), seconds(ttl), string(self.Claim))
	err = backend.All(ctx, s.db, query, func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
	return beat, err
}

// Acquire implements [backend.Backend].
func (s *SQLite) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) ([]storage.Grant, uint64, error) {
	return backend.Grants(ctx, s.db, s.sql.Query("acquire", relay, seconds(ttl), int64(count)))
}

// ChangeLeases implements [backend.Backend]. The statements have the names of the kinds.
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

// Purge implements [backend.Backend].
func (s *SQLite) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		purged, err = backend.Exec(ctx, tx, s.sql.Query("purge", seconds(-retention), int64(limit)))
		return err
	})
	return purged, until, err
}
