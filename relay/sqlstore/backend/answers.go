package backend

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// What statements answer, read into the engine's types: of lanes, of a settle, and of a
// status.

// Grants reads leases that were taken: lane, fence, marks, crashes, journal, and the
// transaction's number.
func Grants(ctx context.Context, q Querier, query Query) (grants []relay.Grant, xid uint64, err error) {
	var grant relay.Grant
	var marks, written text
	err = All(ctx, q, query, func() {
		grant.Marks = stored[relay.Marks](marks)
		journal := stored[journal](written)
		grant.Suspects, grant.Tickets = journal.Suspects, journal.Tickets
		grants = append(grants, grant)
	}, &grant.Lane, &grant.Fence, &marks, &grant.Crashes, &written, &xid)
	return grants, xid, err
}

// Leases reads leases that hold: lane, fence, and the transaction's number.
func Leases(ctx context.Context, q Querier, query Query) (held []relay.Lease, xid uint64, err error) {
	var lease relay.Lease
	err = All(ctx, q, query, func() { held = append(held, lease) }, &lease.Lane, &lease.Fence, &xid)
	return held, xid, err
}

// Journals reads lane, fence and journal of each lane.
func Journals(ctx context.Context, q Querier, query Query) (journals []relay.Journal, err error) {
	var lease relay.Lease
	var written text
	err = All(ctx, q, query, func() {
		j := stored[journal](written)
		journals = append(journals, relay.Journal{Lease: lease, Suspects: j.Suspects, Tickets: j.Tickets})
	}, &lease.Lane, &lease.Fence, &written)
	return journals, err
}

// Marks reads lane and marks of each lane.
func Marks(ctx context.Context, q Querier, query Query) (map[int]relay.Marks, error) {
	found := map[int]relay.Marks{}
	var lane int
	var marks text
	err := All(ctx, q, query, func() { found[lane] = stored[relay.Marks](marks) }, &lane, &marks)
	return found, err
}

// stored reads what stands as JSON in the table of lanes. What can't be read is taken
// for nothing: without marks everything is read again.
func stored[T any](written text) T {
	var value, nothing T
	if err := json.Unmarshal([]byte(written), &value); err != nil {
		return nothing
	}
	return value
}

// journal is what stands in the table of lanes.
type journal struct {
	Suspects []relay.Suspect `json:"suspects,omitempty"`
	Tickets  []relay.Ticket  `json:"tickets,omitempty"`
}

// JournalText is what is stored of a journal.
func JournalText(j relay.Journal) (string, error) {
	written, err := json.Marshal(journal{j.Suspects, j.Tickets})
	return string(written), err
}

// BlockedKeys reads lane, key, topic and id of each.
func BlockedKeys(ctx context.Context, q Querier, query Query) (keys []relay.BlockedKey, err error) {
	var key relay.BlockedKey
	err = All(ctx, q, query, func() { keys = append(keys, key) }, &key.Lane, &key.Key, &key.Topic, &key.ID)
	return keys, err
}

// ReadSettled reads rows of a word and two numbers: ("lane", lane, fence) for each
// lease that holds, ("changed", rows, 0), ("fenced", rows, 0), ("xid", xid, 0).
func ReadSettled(ctx context.Context, q Querier, query Query) (Settled, error) {
	settled := Settled{Held: map[relay.Lease]bool{}}
	var word string
	var a, b int64
	err := All(ctx, q, query, func() {
		switch word {
		case "lane":
			settled.Held[relay.Lease{Lane: int(a), Fence: b}] = true
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
func LeasesOf(settlements []relay.Settlement) (leases []relay.Lease) {
	for i := range settlements {
		s := &settlements[i]
		if i == 0 || s.Lane != settlements[i-1].Lane || s.Fence != settlements[i-1].Fence {
			leases = append(leases, relay.Lease{Lane: s.Lane, Fence: s.Fence})
		}
	}
	return leases
}

// Held are the settlements whose leases hold.
func (s *Settled) HeldOf(settlements []relay.Settlement) (some []relay.Settlement) {
	for _, settlement := range settlements {
		if s.Held[relay.Lease{Lane: settlement.Lane, Fence: settlement.Fence}] {
			some = append(some, settlement)
		}
	}
	return some
}

// Moves are the ways that rows of a batch go.
type Moves struct {
	HotDone, HotHeld, HeldDone, HeldHeld, Freed bool
}

// MovesOf are the ways of these settlements.
func MovesOf(settlements []relay.Settlement) (has Moves) {
	for i := range settlements {
		s := &settlements[i]
		done := s.State == relay.StateDone
		switch {
		case s.State == relay.StatePending:
			has.Freed = true
		case s.Held:
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

const (
	// CountedDone is up to which number done rows are counted; how many more
	// there are is estimated.
	CountedDone = 1_000_000

	// SampledTopics is how many pending rows Status counts by topic.
	SampledTopics = 1000
)

// StatusQueries are what a status asks.
type StatusQueries struct {
	Mode   Query // the way of claiming, if there is one
	Counts Query // state, count of all states; done rows up to CountedDone
	Oldest Query // the age in milliseconds of the oldest row that could be delivered now
	Topics Query // topic, count of the first SampledTopics pending rows
	Relays Query // name, host, version, claim, since, last_beat, alive, lanes of each relay
	Leased Query // how many lanes are leased
}

// ReadStatus asks them.
func ReadStatus(ctx context.Context, q Querier, ask StatusQueries) (relay.Status, error) {
	status := relay.Status{Counts: map[relay.State]int64{
		relay.StatePending: 0, relay.StateClaimed: 0, relay.StateScheduled: 0,
		relay.StateRetry: 0, relay.StateError: 0, relay.StateDone: 0,
	}, Topics: map[string]int64{}}
	if err := One(ctx, q, ask.Mode, &status.Claim); err != nil {
		return status, err
	}
	var state relay.State
	var count int64
	if err := All(ctx, q, ask.Counts, func() { status.Counts[state] += count }, &state, &count); err != nil {
		return status, err
	}
	var milliseconds int64
	if err := One(ctx, q, ask.Oldest, &milliseconds); err != nil {
		return status, err
	}
	status.OldestPending = time.Duration(milliseconds) * time.Millisecond
	var topic string
	if err := All(ctx, q, ask.Topics, func() { status.Topics[topic] = count }, &topic, &count); err != nil {
		return status, err
	}
	var info relay.RelayInfo
	var since, lastBeat moment
	err := All(ctx, q, ask.Relays, func() {
		info.Since, info.LastBeat = time.Time(since), time.Time(lastBeat)
		status.Relays = append(status.Relays, info)
	}, &info.Name, (*text)(&info.Host), (*text)(&info.Version), &info.Claim, &since, &lastBeat, &info.Alive, &info.Lanes)
	if err != nil {
		return status, err
	}
	return status, One(ctx, q, ask.Leased, &status.LanesLeased)
}
