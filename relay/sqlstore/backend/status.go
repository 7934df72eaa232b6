package backend

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

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
