package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

const (
	// Counted is up to which number rows are counted, of each of the places of
	// StatusQueries.Counts: so a count takes no longer for a larger table.
	Counted = 50_000

	// FirstRows is among how many of the first rows the oldest that waits is looked for.
	FirstRows = 6400

	// SampledTopics is how many pending rows Status counts by topic.
	SampledTopics = 1000

	// gaugeTimeout is for how long one of the questions of a status is waited for.
	gaugeTimeout = 2 * time.Second
)

// StatusQueries are what a status asks.
type StatusQueries struct {
	// Counts has lines of place, state, count. Of each place up to Counted rows are looked
	// at: "hot" (in states pending, claimed, scheduled), "error" (the parked rows), "held"
	// (the held ones that aren't parked) and "done".
	Counts Query

	// Claimed counts the claimed rows by an index that there is where the table is claimed by
	// rows: they may lie behind those that Counts looks at, and a drain waits for the last of
	// them.
	Claimed Query

	// Estimates has lines of place ("hot", "done") and an estimate of all of its rows. It is asked
	// where these were too many.
	Estimates Query

	Oldest      Query // the age in milliseconds of the oldest row that could be delivered now
	OldestRetry Query // the age in milliseconds of the oldest row that waits for another attempt
	Held        Query // how many parked rows hold their keys, and for how many milliseconds the first of them has
	Topics      Query // topic, count of the first SampledTopics pending rows
	Relays      Query // name, host, version, claim, since, last_heartbeat, alive, lanes of each relay
	Leased      Query // how many lanes are leased
}

// ReadStatus asks what a database's status is, what is cheap first. What isn't answered in time is absent; only
// without the way of claiming is there no status at all.
func ReadStatus(ctx context.Context, q Querier, capabilities Capabilities) (storage.Status, error) {
	ask := capabilities.Queries.Status
	status := storage.Status{Counts: map[storage.State]int64{
		storage.StatePending: 0, storage.StateClaimed: 0, storage.StateScheduled: 0,
		storage.StateRetry: 0, storage.StateError: 0, storage.StateDone: 0,
	}, Topics: map[string]int64{}}
	if err := One(ctx, q, capabilities.Statements.Query("claim mode"), &status.Claim); err != nil {
		return status, err
	}
	for _, gauge := range []struct {
		name storage.Gauge
		read func(context.Context) error
	}{
		{storage.GaugeRelays, func(ctx context.Context) error {
			var info storage.RelayInfo
			var since, lastBeat moment
			var setup text
			return All(ctx, q, ask.Relays, func() {
				info.Since, info.LastHeartbeat, info.Config = time.Time(since), time.Time(lastBeat), stored[storage.Config](setup)
				status.Relays = append(status.Relays, info)
			}, &info.Name, (*text)(&info.Host), (*text)(&info.Version), &info.Claim, &since, &lastBeat, &info.Alive, &info.Lanes, &setup)
		}},
		{storage.GaugeLanes, func(ctx context.Context) error { return One(ctx, q, ask.Leased, &status.LanesLeased) }},
		{storage.GaugeTopics, func(ctx context.Context) error {
			var topic string
			var count int64
			return All(ctx, q, ask.Topics, func() { status.Topics[topic] = count }, &topic, &count)
		}},
		{storage.GaugeOldestPending, func(ctx context.Context) error {
			return One(ctx, q, ask.Oldest, (*milliseconds)(&status.OldestPending))
		}},
		{storage.GaugeHeldKeys, func(ctx context.Context) error {
			return One(ctx, q, ask.Held, &status.HeldKeys, (*milliseconds)(&status.OldestHeld))
		}},
		{storage.GaugeCounts, func(ctx context.Context) error { return readCounts(ctx, q, ask, &status) }},
		{storage.GaugeOldestRetry, func(ctx context.Context) error {
			return One(ctx, q, ask.OldestRetry, (*milliseconds)(&status.OldestRetry))
		}},
	} {
		limited, cancel := context.WithTimeout(ctx, gaugeTimeout)
		err := gauge.read(limited)
		late := errors.Is(limited.Err(), context.DeadlineExceeded)
		cancel()
		switch {
		case err == nil:
		case late:
			status.Absent = append(status.Absent, gauge.name)
			switch gauge.name { // what came of it is none
			case storage.GaugeRelays:
				status.Relays = nil
			case storage.GaugeTopics:
				clear(status.Topics)
			case storage.GaugeCounts:
				clear(status.Counts)
				status.Estimated, status.AtLeast = nil, nil
			}
		default:
			return status, err
		}
	}
	return status, nil
}

// readCounts adds to what was counted what there is more by estimate.
func readCounts(ctx context.Context, q Querier, ask StatusQueries, status *storage.Status) error {
	counted := map[string]int64{}
	var place string
	var state storage.State
	var count int64
	err := All(ctx, q, ask.Counts, func() {
		counted[place] += count
		status.Counts[state] += count
	}, &place, &state, &count)
	if err != nil {
		return err
	}
	if counted["hot"] >= Counted && status.Claim == storage.ByRows {
		seen := status.Counts[storage.StateClaimed]
		if err := One(ctx, q, ask.Claimed, &count); err != nil {
			return err
		}
		status.Counts[storage.StateClaimed] = count
		status.Counts[storage.StatePending] += seen - count
	}
	if counted["hot"] >= Counted || counted["done"] >= Counted {
		err := All(ctx, q, ask.Estimates, func() {
			state := storage.StatePending // the most of those that weren't looked at
			if place == "done" {
				state = storage.StateDone
			}
			if counted[place] >= Counted {
				status.Counts[state] += max(0, count-counted[place])
			}
		}, &place, &count)
		if err != nil {
			return err
		}
	}
	status.Counts[storage.StatePending] = max(0, status.Counts[storage.StatePending])
	if counted["hot"] >= Counted {
		status.Estimated = append(status.Estimated, storage.StatePending)
		status.AtLeast = append(status.AtLeast, storage.StateScheduled)
	}
	if counted["done"] >= Counted {
		status.Estimated = append(status.Estimated, storage.StateDone)
	}
	if counted["held"] >= Counted {
		status.AtLeast = append(status.AtLeast, storage.StateRetry, storage.StateScheduled)
	}
	if counted["error"] >= Counted {
		status.AtLeast = append(status.AtLeast, storage.StateError)
	}
	slices.Sort(status.Estimated)
	slices.Sort(status.AtLeast)
	status.AtLeast = slices.Compact(status.AtLeast)
	return nil
}

// milliseconds scans a duration.
type milliseconds time.Duration

func (m *milliseconds) Scan(value any) error {
	var n number
	if err := n.Scan(value); err != nil {
		return fmt.Errorf("milliseconds: %w", err)
	}
	*m = milliseconds(time.Duration(n) * time.Millisecond)
	return nil
}
