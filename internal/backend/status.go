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
	// Counted is the maximum number of rows that StatusQueries.Counts counts in each place, such as "hot" or "done",
	// so that the time for a count doesn't grow with the table.
	Counted = 50_000

	// FirstRows is the number of rows at the beginning of the table that a status searches for the oldest waiting row.
	FirstRows = 6400

	// SampledTopics is the maximum number of pending rows among which a status counts the rows of each topic.
	SampledTopics = 1000

	// gaugeTimeout is the time limit for reading one gauge of a status.
	gaugeTimeout = 2 * time.Second
)

// StatusQueries are the queries of a status.
type StatusQueries struct {
	// Counts returns lines of place, state and count. It counts up to Counted rows of each place: "hot" (in the
	// states pending, claimed and scheduled), "error" (the parked rows), "held" (the held rows that aren't
	// parked) and "done". On MySQL and MariaDB it counts up to Counted held rows of each state.
	Counts Query

	// Claimed counts the claimed rows with an index that exists if the table is claimed by rows. Counts is not enough: it
	// doesn't examine all claimed rows of a large table, but a relay that drains the table ends only when no row is claimed.
	Claimed Query

	// Estimates returns lines of place ("hot", "done") and an estimated number of the place's rows. It runs
	// only if Counts has reached the maximum Counted in one of these places.
	Estimates Query

	Oldest      Query // the age in milliseconds of the oldest row that could be delivered now
	OldestRetry Query // the age in milliseconds of the oldest row that waits for another attempt
	Held        Query // the number of parked rows that hold their keys, and for how many milliseconds the oldest of them has held its key
	Topics      Query // each topic among the first SampledTopics pending rows, and the number of its rows
	Relays      Query // name, host, version, claim, since, last_heartbeat, alive, lanes, configuration of each relay
	Leased      Query // the number of leased lanes
}

// ReadStatus reads the status of a table, the cheap gauges first. If a gauge takes too long, ReadStatus adds it
// to Status.Absent. It returns an error for any other failure, and for any failure to read the claim mode.
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
			switch gauge.name { // discard a partial result
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

// readCounts counts the rows of each state, and adds estimates of the rows beyond Counted.
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
			state := storage.StatePending // most of the rows that weren't counted are pending
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

// milliseconds scans a duration that is a number of milliseconds.
type milliseconds time.Duration

func (m *milliseconds) Scan(value any) error {
	var n number
	if err := n.Scan(value); err != nil {
		return fmt.Errorf("milliseconds: %w", err)
	}
	*m = milliseconds(time.Duration(n) * time.Millisecond)
	return nil
}
