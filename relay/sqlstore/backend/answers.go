package backend

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// What statements answer, read into the engine's types: of lanes, and of a status.

// Grants reads leases that were taken: lane, fence, marks, crashes, journal, and the
// transaction's number.
func Grants(ctx context.Context, q Querier, query Query) (grants []storage.Grant, xid uint64, err error) {
	var grant storage.Grant
	var marks, written text
	err = All(ctx, q, query, func() {
		grant.Marks = stored[storage.Marks](marks)
		journal := stored[journal](written)
		grant.Suspects, grant.Batches = journal.Suspects, journal.Batches
		grants = append(grants, grant)
	}, &grant.Lane, &grant.Fence, &marks, &grant.Crashes, &written, &xid)
	return grants, xid, err
}

// Leases reads leases that hold: lane, fence, and the transaction's number.
func Leases(ctx context.Context, q Querier, query Query) (held []storage.Lease, xid uint64, err error) {
	var lease storage.Lease
	err = All(ctx, q, query, func() { held = append(held, lease) }, &lease.Lane, &lease.Fence, &xid)
	return held, xid, err
}

// Journals reads lane, fence and journal of each lane.
func Journals(ctx context.Context, q Querier, query Query) (journals []storage.Journal, err error) {
	var lease storage.Lease
	var written text
	err = All(ctx, q, query, func() {
		j := stored[journal](written)
		journals = append(journals, storage.Journal{Lease: lease, Suspects: j.Suspects, Batches: j.Batches})
	}, &lease.Lane, &lease.Fence, &written)
	return journals, err
}

// Marks reads lane and marks of each lane.
func Marks(ctx context.Context, q Querier, query Query) (map[int]storage.Marks, error) {
	found := map[int]storage.Marks{}
	var lane int
	var marks text
	err := All(ctx, q, query, func() { found[lane] = stored[storage.Marks](marks) }, &lane, &marks)
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
	Suspects []storage.Suspect   `json:"suspects,omitempty"`
	Batches  []storage.SentBatch `json:"batches,omitempty"`
}

// JournalText is what is stored of a journal.
func JournalText(j storage.Journal) (string, error) {
	written, err := json.Marshal(journal{j.Suspects, j.Batches})
	return string(written), err
}

// BlockedKeys reads lane, key, topic and id of each.
func BlockedKeys(ctx context.Context, q Querier, query Query) (keys []storage.BlockedKey, err error) {
	var key storage.BlockedKey
	err = All(ctx, q, query, func() { keys = append(keys, key) }, &key.Lane, &key.Key, &key.Topic, &key.ID)
	return keys, err
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
	Relays Query // name, host, version, claim, since, last_heartbeat, alive, lanes of each relay
	Leased Query // how many lanes are leased
}

// ReadStatus asks them.
func ReadStatus(ctx context.Context, q Querier, ask StatusQueries) (storage.Status, error) {
	status := storage.Status{Counts: map[storage.State]int64{
		storage.StatePending: 0, storage.StateClaimed: 0, storage.StateScheduled: 0,
		storage.StateRetry: 0, storage.StateError: 0, storage.StateDone: 0,
	}, Topics: map[string]int64{}}
	if err := One(ctx, q, ask.Mode, &status.Claim); err != nil {
		return status, err
	}
	var state storage.State
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
	var info storage.RelayInfo
	var since, lastBeat moment
	err := All(ctx, q, ask.Relays, func() {
		info.Since, info.LastHeartbeat = time.Time(since), time.Time(lastBeat)
		status.Relays = append(status.Relays, info)
	}, &info.Name, (*text)(&info.Host), (*text)(&info.Version), &info.Claim, &since, &lastBeat, &info.Alive, &info.Lanes)
	if err != nil {
		return status, err
	}
	return status, One(ctx, q, ask.Leased, &status.LanesLeased)
}
