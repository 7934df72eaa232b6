package memstore

import "context"

// Op is a kind of call.
type Op string

// The calls of a Store and an Operator, and other changes of rows.
const (
	OpSetClaimMode Op = "set claim mode"
	OpHeartbeat    Op = "heartbeat"
	OpDeregister   Op = "deregister"
	OpBury         Op = "bury"
	OpSettle       Op = "settle"
	OpPurge        Op = "purge"
	OpAcquire      Op = "acquire"
	OpRenew        Op = "renew"
	OpRelease      Op = "release"
	OpJournal      Op = "journal"
	OpJournals     Op = "journals"
	OpPick         Op = "pick"
	OpBlockedKeys  Op = "blocked keys"
	OpRead         Op = "read"
	OpScan         Op = "scan"
	OpDue          Op = "due"
	OpClaim        Op = "claim"
	OpExtend       Op = "extend"
	OpReclaim      Op = "reclaim"
	OpStatus       Op = "status"
	OpList         Op = "list"
	OpRemaining    Op = "remaining"
	OpParked       Op = "parked"
	OpReplay       Op = "replay"
	OpControls     Op = "controls"
	OpSetControl   Op = "set control"
	OpAction       Op = "action"
	OpRequeue      Op = "requeue"
	OpSkip         Op = "skip"
	OpDiscard      Op = "discard"

	// OpSettleLocked is the moment in a settlement when its lanes have been locked and no row has
	// been changed. Only the hook Fail is called for it, and an error of Fail rolls the settlement
	// back.
	OpSettleLocked Op = "settle locked"

	OpInsert Op = "insert" // a new row appears; Fail and Lose are not called

	OpAssign   Op = "assign"   // a row of an open transaction gets its id; only Observe is called
	OpRollback Op = "rollback" // only Observe is called
)

// Observe is called at the moment when a call, an insertion or the end of a transaction takes effect, under the table's lock.
// So the order of its calls is the order of the effects. The argument changes has the entries that were added to the history; for
// OpAssign and OpRollback, it has an entry for each row of the transaction. Observe must not use the table.
type Observe func(ctx context.Context, op Op, changes []Change)

// Hooks are called before and after each call, while no lock is held. Hooks may sleep, block, and
// use the table, but they should return when the context ends. A hook that is nil is not called.
type Hooks struct {
	// Fail is called before each call. If Fail returns an error, the call fails with that error
	// and has no effect.
	Fail func(ctx context.Context, op Op) error

	// Lose is called after each successful call. If Lose returns an error, the call's response is
	// lost: the call fails with that error, although it has taken effect.
	Lose func(ctx context.Context, op Op) error
}

func call(ctx context.Context, hook func(context.Context, Op) error, op Op) error {
	if hook == nil {
		return nil
	}
	return hook(ctx, op)
}

// do carries out one call: it calls the hooks before the call, then `work` under the table's lock, and
// then the hooks after the call.
func (s *Store) do(ctx context.Context, op Op, work func() error) error {
	if err := s.before(ctx, op); err != nil {
		return err
	}
	if err := s.locked(ctx, op, work); err != nil {
		return err
	}
	return s.after(ctx, op)
}

func (s *Store) locked(ctx context.Context, op Op, work func() error) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	before := len(s.db.history)
	err := work()
	if err == nil {
		s.db.observe(ctx, op, s.db.history[before:])
	}
	return err
}

func (db *DB) observe(ctx context.Context, op Op, changes []Change) {
	if db.Observe != nil {
		db.Observe(ctx, op, changes)
	}
}

func (s *Store) before(ctx context.Context, op Op) error {
	return firstOf(
		func() error { return call(ctx, s.db.Hooks.Fail, op) },
		func() error { return call(ctx, s.Hooks.Fail, op) },
		ctx.Err,
	)
}

func (s *Store) after(ctx context.Context, op Op) error {
	return firstOf(
		func() error { return call(ctx, s.Hooks.Lose, op) },
		func() error { return call(ctx, s.db.Hooks.Lose, op) },
		ctx.Err,
	)
}

// firstOf calls the checks until one returns an error, and returns this error.
func firstOf(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
