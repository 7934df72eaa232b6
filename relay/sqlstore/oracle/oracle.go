// Package oracle is the [backend.Backend] of Oracle Database 12.2 and later. Its tests
// compare the statements with testdata; none of them has a server. outbox/dialect/ORACLE.md
// has what it runs and why.
package oracle

import (
	"context"
	"database/sql"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Oracle is a table in Oracle.
type Oracle struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
}

var _ backend.TransactionLister = (*Oracle)(nil)

// New returns the backend.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *Oracle { return &Oracle{db, d, table} }

// Traits implements [backend.Backend]. No level of isolation is asked for, as go-ora
// refuses any: it is the session's own, READ COMMITTED, unless somebody has set another
// one, at which the statements are right, too, and are busy more often.
func (d *Oracle) Traits() backend.Traits {
	return backend.Traits{
		Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkPositions,
		Queries: backend.Queries{
			ClaimMode: d.claimMode(), Members: d.members(), Deregister: d.deregister(""), PurgeRelays: d.purgeRelays(),
			Journals: backend.Query{SQL: "SELECT lane, fence, journal FROM " + d.table.Lanes + " WHERE journal IS NOT NULL"},
			Marks:    backend.Query{SQL: "SELECT lane, marks FROM " + d.table.Lanes + " WHERE marks IS NOT NULL ORDER BY lane"}, LastID: d.lastID(),
			Status: backend.StatusQueries{
				Mode: d.claimMode(), Counts: d.counts(backend.CountedDone), Oldest: d.oldest(), Topics: d.topics(backend.SampledTopics),
				Relays: d.listRelays(), Leased: d.leased(),
			},
		},
	}
}

// inTx lets one at a time change several things. Nothing bounds the wait: those who hold
// this lock wait for none that an application holds.
func (d *Oracle) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, d.db, nil, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, backend.Query{SQL: "UPDATE " + d.table.Settings + " SET value = value WHERE name = 'schema'"}); err != nil {
			return err
		}
		return work(tx)
	})
}

// steps are a change whose answer is selected afterwards, in the same transaction.
type steps struct {
	do  []backend.Query
	ask backend.Query
}

// answer carries out steps.
func (d *Oracle) answer(ctx context.Context, s steps, read func(*sql.Tx, backend.Query) error) error {
	return backend.InTx(ctx, d.db, nil, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, s.do...); err != nil {
			return err
		}
		return read(tx, s.ask)
	})
}

// write is one statement of a change. The rows that it affects may count.
type write struct {
	backend.Query
	counts bool
}

func run(ctx context.Context, tx *sql.Tx, writes []write) (changed int, err error) {
	for _, write := range writes {
		affected, err := backend.Exec(ctx, tx, write.Query)
		if err != nil {
			return 0, err
		}
		if write.counts {
			changed += affected
		}
	}
	return changed, nil
}

// SetClaimMode implements [backend.Members].
func (d *Oracle) SetClaimMode(ctx context.Context, claim relay.Claim) error {
	return d.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, d.dialect, d.table, claim, backend.ModeChange{
			Lock: d.lockClaimMode(), Others: d.otherRelays(string(claim)), Set: d.setClaimMode(string(claim)), Forget: d.forget(),
		})
	})
}

// Heartbeat implements [backend.Members].
func (d *Oracle) Heartbeat(ctx context.Context, self relay.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	var epoch sql.NullString
	err = d.answer(ctx, d.heartbeat(self, ttl), func(tx *sql.Tx, query backend.Query) error {
		return backend.All(ctx, tx, query, func() { beat.Stored = true }, &name, &beat.XID, &epoch)
	})
	beat.Epoch = epoch.String
	return beat, err
}

// Acquire implements [backend.Lanes].
func (d *Oracle) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) (grants []relay.Grant, xid uint64, err error) {
	err = d.answer(ctx, d.acquire(relay, count, ttl), func(tx *sql.Tx, query backend.Query) error {
		grants, xid, err = backend.Grants(ctx, tx, query)
		return err
	})
	return grants, xid, err
}

// ChangeLeases implements [backend.Backend].
func (d *Oracle) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) (held []relay.Lease, xid uint64, err error) {
	err = d.answer(ctx, d.changeLeases(change, leases), func(tx *sql.Tx, query backend.Query) error {
		held, xid, err = backend.Leases(ctx, tx, query)
		return err
	})
	return held, xid, err
}

// BeginLanes implements [backend.Pages].
func (d *Oracle) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	return d.Read(ctx, backend.Read{}, nil)
}

// Read implements [backend.Pages].
func (d *Oracle) Read(ctx context.Context, page backend.Read, take func(relay.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, d.db, nil, d.page(page), take)
	return line, err
}

// Candidates implements [backend.Pages].
func (d *Oracle) Candidates(ctx context.Context, positions []relay.Position, except []string, limit int, take func(relay.Candidate) (bool, error)) error {
	return backend.ReadCandidates(ctx, d.db, d.candidates(positions, except, limit), take)
}

// Pick implements [backend.Pages].
func (d *Oracle) Pick(ctx context.Context, rows []relay.RowID, held bool) ([]relay.Row, error) {
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

// Settle implements [backend.Settling].
func (d *Oracle) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []relay.Settlement) (settled backend.Settled, err error) {
	if tx == nil {
		err = backend.InTx(ctx, d.db, nil, func(tx *sql.Tx) error {
			settled, err = d.Settle(ctx, tx, relay, keep, settlements)
			return err
		})
		return settled, err
	}
	settle := d.settleLanes
	if settlements[0].Token != "" {
		settle = d.settleRows
	}
	lock, facts, writes := settle(relay, keep, settlements)
	if _, err := backend.Exec(ctx, tx, lock); err != nil {
		return settled, err
	}
	if settled, err = backend.ReadSettled(ctx, tx, facts); err != nil {
		return settled, err
	}
	changed, err := run(ctx, tx, writes)
	settled.Changed += changed
	return settled, err
}

// Purge implements [backend.Settling].
func (d *Oracle) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		purged, err = backend.Exec(ctx, tx, d.purge(retention, limit))
		return err
	})
	return purged, until, err
}

// Claim implements [backend.Rows].
func (d *Oracle) Claim(ctx context.Context, request relay.ClaimRequest) (claimed []relay.Row, err error) {
	err = d.answer(ctx, d.claim(request), func(tx *sql.Tx, query backend.Query) error {
		claimed, err = backend.ReadRows(ctx, tx, query)
		return err
	})
	return claimed, err
}

// Extend implements [backend.Rows].
func (d *Oracle) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
	err = d.answer(ctx, d.extend(token, ids, ttl), func(tx *sql.Tx, query backend.Query) error {
		still, err = backend.IDs(ctx, tx, query)
		return err
	})
	return still, err
}

// Reclaim implements [backend.Rows].
func (d *Oracle) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		ids, err := backend.IDs(ctx, tx, d.expired(limit))
		if err != nil || len(ids) == 0 {
			return err
		}
		freed = len(ids)
		_, err = backend.Exec(ctx, tx, d.freeExpired(ids))
		return err
	})
	if err != nil {
		return 0, err
	}
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		back, err := run(ctx, tx, d.bringBack(limit))
		freed += back
		return err
	})
	return freed, err
}

// ListOpen implements [backend.TransactionLister]. It compares positions in the database's
// log: transactions are known by that of their first change, which comes before their
// first id, as the table's trigger begins the transaction. All instances of a cluster are
// asked. A position of 0 is one that the database doesn't know, and holds everything up.
func (d *Oracle) ListOpen(ctx context.Context, _ string) (backend.OpenList, error) {
	return backend.ReadOpenList(ctx, d.db, backend.Query{SQL: "SELECT 'number', TO_CHAR(current_scn) FROM v$database\n" +
		"UNION ALL SELECT 'open', TO_CHAR(MIN(start_scn)) FROM gv$transaction HAVING COUNT(*) > 0\n" +
		"UNION ALL SELECT 'server', " + server + " FROM dual"})
}

// Grant implements [backend.TransactionLister]. It has both views; without one of them the
// database says that there is no such thing.
func (d *Oracle) Grant() string {
	return "SELECT ON sys.gv_$transaction (and the same ON sys.v_$database)"
}

// locks is the table whose rows are locked in the place of what has no row, or none that
// may be locked: see outbox/dialect/ORACLE.md. A lane has several, of which a settle locks
// one and a takeover all.
func locks(table dialect.Table) string { return table.Index("locks") }

const (
	laneSlots = "8"    // locks of each lane: 8 * lane + slot
	keyLocks  = "1000" // the first of the locks of keys
)

// bytes is a text as its bytes, whatever the session compares by.
func bytes(text string) string { return "NLSSORT(" + text + ", 'NLS_SORT=BINARY')" }

func same(a, b string) string { return bytes(a) + " = " + bytes(b) }
