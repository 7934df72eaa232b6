package sqlstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// A busy database is asked again a few times, not for long: the caller knows
// better what else there is to do.
const (
	busyTries    = 4
	busyPause    = 20 * time.Millisecond // at most, before the second try; then more
	busyPatience = time.Second
)

// try carries out what changes nothing when it fails, again while the database
// is busy, and says what it was that failed.
func (s *Store) try(ctx context.Context, what string, work func() error) error {
	start := time.Now()
	for n := 1; ; n++ {
		err := work()
		if err == nil {
			return nil
		}
		if s.dialect.Missing(err) {
			return fmt.Errorf("%s %s: %w: %w", what, s.table, relay.ErrNoSchema, err)
		}
		if !s.dialect.Busy(err) {
			return fmt.Errorf("%s %s: %w", what, s.table, err)
		}
		if n == busyTries || time.Since(start) > busyPatience {
			return fmt.Errorf("%s %s: %w: %w", what, s.table, relay.ErrBusy, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w", what, s.table, ctx.Err())
		case <-time.After(rand.N(busyPause * time.Duration(n))):
		}
	}
}

// write is try for what writes. Where there is one writer at a time our own
// writers wait here, in turn: those that wait for the database's lock look for
// it now and then, and sleep in between.
func (s *Store) write(ctx context.Context, what string, work func() error) error {
	done, err := s.turn(ctx)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, s.table, err)
	}
	defer done()
	return s.try(ctx, what, work)
}

func (s *Store) turn(ctx context.Context) (done func(), err error) {
	if !s.traits.OneWriter {
		return func() {}, nil
	}
	select {
	case s.writing <- struct{}{}:
		return func() { <-s.writing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
