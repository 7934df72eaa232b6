package backend

import (
	"context"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// ReadSettled reads rows of a word and two numbers: ("lane", lane, fence) for each
// lease that holds, ("changed", rows, 0), ("fenced", rows, 0), ("xid", xid, 0).
func ReadSettled(ctx context.Context, q Querier, query Query) (Settled, error) {
	settled := Settled{Held: map[storage.Lease]bool{}}
	var word string
	var a, b int64
	err := All(ctx, q, query, func() {
		switch word {
		case "lane":
			settled.Held[storage.Lease{Lane: int(a), Fence: b}] = true
		case "changed":
			settled.Changed += int(a)
		case "fenced":
			settled.Fenced += int(a)
		case "xid":
			settled.XID = uint64(a)
		}
	}, &word, &a, &b)
	return settled, err
}

// LeasesOf are the leases that settlements show, which are in the order of lanes.
func LeasesOf(settlements []storage.Settlement) (leases []storage.Lease) {
	for i := range settlements {
		s := &settlements[i]
		if i == 0 || s.Lane != settlements[i-1].Lane || s.Fence != settlements[i-1].Fence {
			leases = append(leases, storage.Lease{Lane: s.Lane, Fence: s.Fence})
		}
	}
	return leases
}

// HeldOf returns the settlements whose leases hold.
func (s *Settled) HeldOf(settlements []storage.Settlement) (some []storage.Settlement) {
	for _, settlement := range settlements {
		if s.Held[storage.Lease{Lane: settlement.Lane, Fence: settlement.Fence}] {
			some = append(some, settlement)
		}
	}
	return some
}

// Write is one statement of a settle. The rows that it affects may count as changed.
type Write struct {
	Query
	Counts bool
}

// Write runs statements, and counts what they changed.
func (s *Settled) Write(ctx context.Context, q Querier, writes []Write) error {
	for _, write := range writes {
		affected, err := Exec(ctx, q, write.Query)
		if err != nil {
			return err
		}
		if write.Counts {
			s.Changed += affected
		}
	}
	return nil
}

// Groups are the settlements of a batch by where their rows are, and where they go.
type Groups struct {
	HotDone, HotHeld, HeldDone, HeldHeld, Freed []storage.Settlement
}

// GroupsOf are the groups of these settlements.
func GroupsOf(settlements []storage.Settlement) (groups Groups) {
	for _, s := range settlements {
		group := &groups.HotHeld
		switch {
		case s.State == storage.StatePending:
			group = &groups.Freed
		case s.State == storage.StateDone && s.Deferred:
			group = &groups.HeldDone
		case s.State == storage.StateDone:
			group = &groups.HotDone
		case s.Deferred:
			group = &groups.HeldHeld
		}
		*group = append(*group, s)
	}
	return groups
}

// Moves are the ways that rows of a batch go.
type Moves struct {
	HotDone, HotHeld, HeldDone, HeldHeld, Freed bool
}

// MovesOf are the ways of these settlements.
func MovesOf(settlements []storage.Settlement) (has Moves) {
	for i := range settlements {
		s := &settlements[i]
		done := s.State == storage.StateDone
		switch {
		case s.State == storage.StatePending:
			has.Freed = true
		case s.Deferred:
			has.HeldDone, has.HeldHeld = has.HeldDone || done, has.HeldHeld || !done
		default:
			has.HotDone, has.HotHeld = has.HotDone || done, has.HotHeld || !done
		}
	}
	return has
}

// AllEqual says whether all values are the same. Most batches are all done, at their
// first attempt, and what is the same for all rows is given once.
func AllEqual[T comparable](values []T) bool {
	for _, value := range values {
		if value != values[0] {
			return false
		}
	}
	return true
}

// Column has one thing of each row.
func Column[T, C any](rows []T, of func(*T) C) []C {
	values := make([]C, len(rows))
	for i := range rows {
		values[i] = of(&rows[i])
	}
	return values
}
