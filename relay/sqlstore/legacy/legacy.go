// Package legacy runs the statements that a dialect still has itself: the backend of
// the databases that have none of their own yet. It goes with the last of them.
package legacy

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Legacy is a table of a dialect that is a [dialect.Relaying].
type Legacy struct {
	db      *sql.DB
	dialect dialect.Dialect
	d       dialect.Relaying
	table   dialect.Table
}

// listing is a Legacy whose dialect is [dialect.Observing].
type listing struct{ *Legacy }

// New returns the backend.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) backend.Backend {
	l := &Legacy{db, d, d.(dialect.Relaying), table}
	if _, observing := d.(dialect.Observing); observing {
		return listing{l}
	}
	return l
}

// Traits implements [backend.Backend].
func (l *Legacy) Traits() backend.Traits {
	traits := backend.Traits{Tx: &sql.TxOptions{Isolation: sql.LevelReadCommitted}, OneWriter: l.d.OneWriter(), Claims: 1}
	if _, session := l.d.(dialect.SessionIsolated); session || traits.OneWriter {
		traits.Tx = nil
	}
	if _, observing := l.d.(dialect.Observing); observing {
		traits.Frontier = backend.OpenTransactions
	}
	if walking, ok := l.d.(dialect.Walking); ok {
		traits.Walk = backend.Walk(walking.Walk())
	}
	return traits
}

// Check implements [backend.Backend].
func (l *Legacy) Check(ctx context.Context, claim relay.Claim) (findings []backend.Finding) {
	if trying, ok := l.d.(dialect.Trying); ok {
		findings = append(findings, l.checkRights(ctx, trying.Rights(l.table, string(claim))))
	}
	var probes []backend.Probe
	for _, probe := range l.d.Probes(l.table, string(claim)) {
		probes = append(probes, backend.Probe(probe))
	}
	return append(findings, backend.Findings(ctx, l.db, probes)...)
}

// checkRights tries what takes a right, where there is no other way.
func (l *Legacy) checkRights(ctx context.Context, tries []dialect.Try) backend.Finding {
	var lacking []string
	for _, try := range tries {
		if _, err := backend.Lines(ctx, l.db, try.Query); l.dialect.Denied(err) {
			lacking = append(lacking, try.Right)
		} else if err != nil {
			return backend.Finding{Name: "rights", Detail: err.Error()}
		}
	}
	if len(lacking) > 0 {
		return backend.Finding{Name: "rights", Detail: "this user lacks: " + strings.Join(lacking, ", "), Hint: "have an administrator GRANT it"}
	}
	return backend.Finding{Name: "rights", OK: true}
}

// answer carries out the steps. take reads the answer, and says what the first
// column of its rows was.
func (l *Legacy) answer(ctx context.Context, steps dialect.Steps, take func(backend.Querier, dialect.Query) (first []int64, err error)) error {
	if len(steps.Do) == 0 && steps.After == nil {
		_, err := take(l.db, steps.Ask)
		return err
	}
	return l.inTx(ctx, steps.Do, func(tx *sql.Tx) error {
		first, err := take(tx, steps.Ask)
		if err != nil {
			return err
		}
		if steps.After != nil && len(first) > 0 {
			if _, err := backend.Exec(ctx, tx, steps.After(first)...); err != nil {
				return err
			}
		}
		if steps.Also.SQL != "" {
			_, err = take(tx, steps.Also)
		}
		return err
	})
}

func (l *Legacy) inTx(ctx context.Context, begin []dialect.Query, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, l.db, l.Traits().Tx, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, begin...); err != nil {
			return err
		}
		return work(tx)
	})
}

// ids carries out steps that answer with ids.
func (l *Legacy) ids(ctx context.Context, steps dialect.Steps) (ids []int64, err error) {
	err = l.answer(ctx, steps, func(q backend.Querier, query dialect.Query) ([]int64, error) {
		some, err := backend.IDs(ctx, q, query)
		ids = append(ids, some...)
		return some, err
	})
	return ids, err
}

// ClaimMode implements [backend.Members].
func (l *Legacy) ClaimMode(ctx context.Context) (mode relay.Claim, err error) {
	err = backend.One(ctx, l.db, l.d.ClaimedBy(l.table), &mode)
	return mode, err
}

// SetClaimMode implements [backend.Members].
func (l *Legacy) SetClaimMode(ctx context.Context, claim relay.Claim) error {
	return l.inTx(ctx, l.d.Begin(l.table), func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, l.dialect, l.table, claim, backend.ModeChange{
			Lock: l.d.LockClaim(l.table), Others: l.d.OtherRelays(l.table, string(claim)),
			Set: l.d.SetClaim(l.table, string(claim)), Forget: l.d.Forget(l.table),
		})
	})
}

// Heartbeat implements [backend.Members].
func (l *Legacy) Heartbeat(ctx context.Context, self relay.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	var epoch sql.NullString
	sign := dialect.Beat{Name: self.Name, Host: self.Host, Version: self.Version, Claim: string(self.Claim), TTL: ttl}
	err = l.answer(ctx, l.d.Beat(l.table, sign), func(q backend.Querier, query dialect.Query) ([]int64, error) {
		return nil, backend.All(ctx, q, query, func() { beat.Stored = true }, &name, &beat.XID, &epoch)
	})
	if err != nil || !beat.Stored {
		return beat, err
	}
	beat.Epoch = epoch.String
	err = backend.All(ctx, l.db, l.d.Census(l.table), func() { beat.Alive = append(beat.Alive, name) }, &name)
	return beat, err
}

// Deregister implements [backend.Members].
func (l *Legacy) Deregister(ctx context.Context, name string) error {
	_, err := backend.ExecTx(ctx, l.db, l.Traits().Tx, l.d.Leave(l.table, name))
	return err
}

// Acquire implements [backend.Lanes].
func (l *Legacy) Acquire(ctx context.Context, name string, count int, ttl time.Duration) (grants []relay.Grant, xid uint64, err error) {
	err = l.answer(ctx, l.d.Acquire(l.table, name, count, ttl), func(q backend.Querier, query dialect.Query) (lanes []int64, err error) {
		if grants, xid, err = backend.Grants(ctx, q, query); err != nil {
			return nil, err
		}
		return backend.Column(grants, func(g *relay.Grant) int64 { return int64(g.Lane) }), nil
	})
	return grants, xid, err
}

// Renew implements [backend.Lanes].
func (l *Legacy) Renew(ctx context.Context, name, epoch string, leases []backend.Lease, ttl time.Duration) ([]relay.Lease, uint64, error) {
	return l.change(ctx, l.d.Renew(l.table, name, epoch, toLeases(leases), ttl))
}

// Release implements [backend.Lanes].
func (l *Legacy) Release(ctx context.Context, name, epoch string, leases []backend.Lease) ([]relay.Lease, uint64, error) {
	return l.change(ctx, l.d.Release(l.table, name, epoch, toLeases(leases)))
}

// WriteJournal implements [backend.Lanes].
func (l *Legacy) WriteJournal(ctx context.Context, name string, leases []backend.Lease) ([]relay.Lease, uint64, error) {
	return l.change(ctx, l.d.Journal(l.table, name, toLeases(leases)))
}

func toLeases(leases []backend.Lease) []dialect.Lease {
	return backend.Column(leases, func(l *backend.Lease) dialect.Lease {
		return dialect.Lease{Lane: l.Lane, Fence: l.Fence, Marks: l.Marks, Journal: l.Journal, Calm: l.Calm}
	})
}

func (l *Legacy) change(ctx context.Context, steps dialect.Steps) (held []relay.Lease, xid uint64, err error) {
	err = l.answer(ctx, steps, func(q backend.Querier, query dialect.Query) (lanes []int64, err error) {
		if held, xid, err = backend.Leases(ctx, q, query); err != nil {
			return nil, err
		}
		return backend.Column(held, func(h *relay.Lease) int64 { return int64(h.Lane) }), nil
	})
	return held, xid, err
}

// Journals implements [backend.Lanes].
func (l *Legacy) Journals(ctx context.Context) ([]relay.Journal, error) {
	return backend.Journals(ctx, l.db, l.d.Journals(l.table))
}

// Marks implements [backend.Lanes].
func (l *Legacy) Marks(ctx context.Context) (map[int]relay.Marks, error) {
	return backend.Marks(ctx, l.db, l.d.Marks(l.table))
}

// BeginLanes implements [backend.Pages].
func (l *Legacy) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	first, err := l.FirstLine(ctx)
	if err != nil {
		return first, fmt.Errorf("read the server's epoch (of the primary, as no standby will do): %w", err)
	}
	return first, nil
}

// LastID implements [backend.Pages].
func (l *Legacy) LastID(ctx context.Context) (last int64, err error) {
	err = backend.One(ctx, l.db, l.d.Given(l.table), &last)
	return last, err
}

// FirstLine implements [backend.Pages].
func (l *Legacy) FirstLine(ctx context.Context) (backend.FirstLine, error) {
	return l.Read(ctx, backend.Read{}, func(relay.Row) (bool, error) { return true, nil })
}

// Read implements [backend.Pages].
func (l *Legacy) Read(ctx context.Context, page backend.Read, take func(relay.Row) (bool, error)) (backend.FirstLine, error) {
	query := l.d.Read(l.table, dialect.Read{Positions: toPositions(page.Positions), Limit: page.Limit, Share: page.Share, MaxBytes: page.MaxBytes, Number: page.Number})
	line, _, err := backend.ReadPage(ctx, l.db, nil, query, take)
	return line, err
}

func toPositions(positions []relay.Position) []dialect.Position {
	return backend.Column(positions, func(p *relay.Position) dialect.Position { return dialect.Position(*p) })
}

// Candidates implements [backend.Pages].
func (l *Legacy) Candidates(ctx context.Context, positions []relay.Position, except []string, limit int, take func(relay.Candidate) (bool, error)) error {
	return backend.ReadCandidates(ctx, l.db, l.d.Candidates(l.table, toPositions(positions), except, limit), take)
}

// Pick implements [backend.Pages].
func (l *Legacy) Pick(ctx context.Context, rows []relay.RowID, held bool) ([]relay.Row, error) {
	pick := l.d.Pick
	if held {
		pick = l.d.PickHeld
	}
	lanes, ids := places(rows)
	found, err := backend.ReadRows(ctx, l.db, pick(l.table, lanes, ids))
	for i := range found {
		found[i].Held = held
	}
	return found, err
}

func places(rows []relay.RowID) (lanes []int, ids []int64) {
	for _, row := range rows {
		lanes, ids = append(lanes, row.Lane), append(ids, row.ID)
	}
	return lanes, ids
}

// Due implements [backend.Pages].
func (l *Legacy) Due(ctx context.Context, lanes []int, after relay.DueCursor, limit, maxBytes int) ([]relay.Row, error) {
	return backend.ReadHeld(ctx, l.db, l.d.Due(l.table, lanes, dialect.After{At: after.At, ID: after.ID}, limit, maxBytes), maxBytes)
}

// HeldKeys implements [backend.Pages].
func (l *Legacy) HeldKeys(ctx context.Context, lanes []int, limit int) ([]relay.HeldKey, error) {
	return backend.HeldKeys(ctx, l.db, l.d.HeldKeys(l.table, lanes, limit))
}

// HeldAmong implements [backend.Pages].
func (l *Legacy) HeldAmong(ctx context.Context, keys []relay.LaneKey) ([]relay.HeldKey, error) {
	lanes := backend.Column(keys, func(key *relay.LaneKey) int { return key.Lane })
	names := backend.Column(keys, func(key *relay.LaneKey) string { return key.Key })
	return backend.HeldKeys(ctx, l.db, l.d.HeldAmong(l.table, lanes, names))
}

// Settle implements [backend.Settling].
func (l *Legacy) Settle(ctx context.Context, tx *sql.Tx, name string, keep bool, settlements []relay.Settlement) (settled backend.Settled, err error) {
	settle := l.d.SettleLanes
	if settlements[0].Token != "" {
		settle = l.d.SettleRows
	}
	change := settle(l.table, name, keep, backend.Column(settlements, func(s *relay.Settlement) dialect.Settlement {
		return dialect.Settlement{ID: s.ID, Lane: s.Lane, MessageID: s.MessageID, Fence: s.Fence, Token: s.Token, Held: s.Held, State: string(s.State),
			Attempts: s.Attempts, Crashes: s.Crashes, Delay: s.Delay, Error: s.Error, Receipt: s.Receipt}
	}))
	work := func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, change.Begin...); err != nil {
			return err
		}
		if settled, err = backend.ReadSettled(ctx, tx, change.Facts); err != nil {
			return err
		}
		writes := change.Writes
		if change.Then != nil {
			writes = change.Then(func(lane int, fence int64) bool { return settled.Held[relay.Lease{Lane: lane, Fence: fence}] })
		}
		for _, write := range writes {
			affected, err := backend.Exec(ctx, tx, write.Query)
			if err != nil {
				return err
			}
			if write.Counts {
				settled.Changed += affected
			}
		}
		return nil
	}
	if tx != nil {
		err = work(tx)
	} else if len(change.Begin) == 0 && len(change.Writes) == 0 {
		settled, err = backend.ReadSettled(ctx, l.db, change.Facts)
	} else {
		err = l.inTx(ctx, nil, work)
	}
	return settled, err
}

// Purge implements [backend.Settling].
func (l *Legacy) Purge(ctx context.Context, retention time.Duration, limit int, since time.Time) (purged int, until time.Time, err error) {
	purged, err = l.carryOut(ctx, l.d.Purge(l.table, dialect.Purge{Retention: retention, Limit: limit, Since: since}))
	if err == nil {
		_, err = backend.ExecTx(ctx, l.db, l.Traits().Tx, l.d.PurgeRelays(l.table))
	}
	return purged, until, err
}

// carryOut runs writes in a transaction, and counts the rows that they change.
func (l *Legacy) carryOut(ctx context.Context, writes []dialect.Write) (changed int, err error) {
	err = l.inTx(ctx, l.d.Begin(l.table), func(tx *sql.Tx) error {
		changed = 0
		for _, write := range writes {
			var affected int
			var err error
			if write.After == nil {
				affected, err = backend.Exec(ctx, tx, write.Query)
			} else {
				var ids []int64
				if ids, err = backend.IDs(ctx, tx, write.Query); err == nil && len(ids) > 0 {
					_, err = backend.Exec(ctx, tx, write.After(ids)...)
				}
				affected = len(ids)
			}
			if err != nil {
				return err
			}
			if write.Counts {
				changed += affected
			}
		}
		return nil
	})
	return changed, err
}

// HasFree implements [backend.Rows].
func (l *Legacy) HasFree(ctx context.Context) (bool, error) {
	if peeking, ok := l.d.(dialect.ClaimPeeking); ok {
		return backend.Any(ctx, l.db, peeking.PeekFree(l.table))
	}
	return true, nil
}

// HasExpired implements [backend.Rows].
func (l *Legacy) HasExpired(ctx context.Context) (bool, error) {
	if peeking, ok := l.d.(dialect.ClaimPeeking); ok {
		return backend.Any(ctx, l.db, peeking.PeekEnded(l.table))
	}
	return true, nil
}

// Claim implements [backend.Rows].
func (l *Legacy) Claim(ctx context.Context, r relay.ClaimRequest) (claimed []relay.Row, err error) {
	steps := l.d.Claim(l.table, dialect.Claim{Relay: r.Relay, Token: r.Token, TTL: r.TTL, Limit: r.Limit, MaxBytes: r.MaxBytes,
		Pick: string(r.Pick), Topics: r.Topics, Except: r.Except})
	err = l.answer(ctx, steps, func(q backend.Querier, query dialect.Query) ([]int64, error) {
		if steps.After == nil {
			claimed, err = backend.ReadRows(ctx, q, query)
		} else {
			claimed, err = backend.ReadFree(ctx, q, query, r.MaxBytes, func(rows []relay.RowID) dialect.Query {
				lanes, ids := places(rows)
				return l.d.Pick(l.table, lanes, ids)
			})
		}
		return backend.Column(claimed, func(row *relay.Row) int64 { return row.ID }), err
	})
	return claimed, err
}

// Extend implements [backend.Rows].
func (l *Legacy) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return l.ids(ctx, l.d.Extend(l.table, token, ids, ttl))
}

// Reclaim implements [backend.Rows].
func (l *Legacy) Reclaim(ctx context.Context, limit int) (int, error) {
	freed, err := l.carryOut(ctx, l.d.FreeEnded(l.table, limit))
	if err != nil {
		return 0, err
	}
	returned, err := l.carryOut(ctx, l.d.Return(l.table, limit))
	return freed + returned, err
}

// Status implements [backend.Operating].
func (l *Legacy) Status(ctx context.Context) (relay.Status, error) {
	return backend.ReadStatus(ctx, l.db, backend.StatusQueries{
		Mode: l.d.ClaimedBy(l.table), Counts: l.d.Counts(l.table, backend.CountedDone), Oldest: l.d.Oldest(l.table),
		Topics: l.d.Topics(l.table, backend.SampledTopics), Relays: l.d.ListRelays(l.table), Leased: l.d.LanesLeased(l.table),
	})
}

func toFilter(f backend.Filter) dialect.Filter {
	return dialect.Filter{IDs: f.RowIDs, MessageIDs: f.MessageIDs, ByID: f.ByID, Topic: f.Topic, Key: f.Key, State: string(f.State),
		Since: f.Since, Error: f.Error, AfterID: f.AfterID, Limit: f.Limit}
}

// List implements [backend.Operating].
func (l *Legacy) List(ctx context.Context, filter backend.Filter) ([]relay.Info, error) {
	return backend.ReadInfos(ctx, l.db, l.d.List(l.table, toFilter(filter)))
}

// Requeue implements [backend.Operating].
func (l *Legacy) Requeue(ctx context.Context, filter backend.Filter) ([]int64, error) {
	return l.ids(ctx, l.d.Requeue(l.table, toFilter(filter)))
}

// Discard implements [backend.Operating].
func (l *Legacy) Discard(ctx context.Context, filter backend.Filter) ([]int64, error) {
	return l.ids(ctx, l.d.Discard(l.table, toFilter(filter)))
}

// Grant implements [backend.TransactionLister].
func (l listing) Grant() string {
	if granted, ok := l.d.(dialect.Granted); ok {
		return granted.Grant()
	}
	return "PROCESS ON *.*"
}

// ListOpen implements [backend.TransactionLister].
func (l listing) ListOpen(ctx context.Context, token string) (list backend.OpenList, err error) {
	err = l.answer(ctx, l.d.(dialect.Observing).Observe(l.table, token), func(q backend.Querier, query dialect.Query) ([]int64, error) {
		list, err = backend.ReadOpenList(ctx, q, query)
		return nil, err
	})
	return list, err
}
