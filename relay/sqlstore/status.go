package sqlstore

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

const (
	// countedDone is up to which number done rows are counted; how many more
	// there are is estimated.
	countedDone = 1_000_000

	// sampled is how many pending rows Status counts by topic.
	sampled = 1000
)

// Status implements [relay.Operator]. It counts all rows that are not done, and
// done rows up to a million; if there are more, it returns an estimate, which is
// the server's own on PostgreSQL, and the span of their ids on SQLite.
func (s *Store) Status(ctx context.Context) (status relay.Status, err error) {
	err = s.try(ctx, "read the status of table", func() error {
		status = relay.Status{Counts: noCounts(), Topics: map[string]int64{}}
		for _, read := range []func(context.Context, *relay.Status) error{s.readClaim, s.readCounts, s.readOldest, s.readTopics, s.readRelays, s.readLanes} {
			if err := read(ctx, &status); err != nil {
				return err
			}
		}
		return nil
	})
	return status, err
}

func noCounts() map[relay.State]int64 {
	return map[relay.State]int64{
		relay.StatePending: 0, relay.StateClaimed: 0, relay.StateScheduled: 0,
		relay.StateRetry: 0, relay.StateError: 0, relay.StateDone: 0,
	}
}

func (s *Store) readClaim(ctx context.Context, status *relay.Status) error {
	return all(ctx, s.db, s.dialect.ClaimedBy(s.table), func() {}, &status.Claim)
}

func (s *Store) readCounts(ctx context.Context, status *relay.Status) error {
	var state relay.State
	var count int64
	return all(ctx, s.db, s.dialect.Counts(s.table, countedDone), func() { status.Counts[state] += count }, &state, &count)
}

func (s *Store) readOldest(ctx context.Context, status *relay.Status) error {
	var milliseconds int64
	err := all(ctx, s.db, s.dialect.Oldest(s.table), func() {}, &milliseconds)
	status.OldestPending = time.Duration(milliseconds) * time.Millisecond
	return err
}

func (s *Store) readTopics(ctx context.Context, status *relay.Status) error {
	var topic string
	var count int64
	return all(ctx, s.db, s.dialect.Topics(s.table, sampled), func() { status.Topics[topic] = count }, &topic, &count)
}

func (s *Store) readRelays(ctx context.Context, status *relay.Status) error {
	var info relay.RelayInfo
	var since, lastBeat moment
	return all(ctx, s.db, s.dialect.ListRelays(s.table), func() {
		info.Since, info.LastBeat = time.Time(since), time.Time(lastBeat)
		status.Relays = append(status.Relays, info)
	}, &info.Name, (*text)(&info.Host), (*text)(&info.Version), &info.Claim, &since, &lastBeat, &info.Alive, &info.Lanes)
}

func (s *Store) readLanes(ctx context.Context, status *relay.Status) error {
	return all(ctx, s.db, s.dialect.LanesLeased(s.table), func() {}, &status.LanesLeased)
}
