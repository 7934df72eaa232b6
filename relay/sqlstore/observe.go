package sqlstore

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// defaultLongestTransaction is long for a transaction that writes a message,
// and not long to wait for one's place.
const defaultLongestTransaction = time.Minute

// beginObserving makes the first observation, which shows whether there can be
// any: where the user may not see transactions, or where it tells nothing, ids
// are final after a time.
func (s *Store) beginObserving(ctx context.Context, given int64, unordered bool) error {
	if s.traits.Frontier != backend.OpenTransactions {
		return nil
	}
	s.observed = newObserved(given, time.Now())
	if unordered {
		s.observed.trail = &trail{longest: s.longest}
		return nil
	}
	_, err := s.lookAround(ctx)
	if s.hidden(err) {
		s.observed.trail = &trail{longest: s.longest}
		s.findings = append(s.findings, s.unseen(err))
		return nil
	}
	if s.dialect.Busy(err) {
		return nil // the next one may tell
	}
	return err
}

// hidden says that the user may not see transactions. What lists them is missing
// then on some databases.
func (s *Store) hidden(err error) bool { return s.dialect.Denied(err) || s.dialect.Missing(err) }

func (s *Store) unseen(err error) Finding {
	return Finding{
		Name:   "open transactions",
		Detail: fmt.Sprintf("this user may not see them (%v): rows of transactions that are open for more than %v keep no order", err, s.longest),
		Hint:   "have an administrator run GRANT " + s.backend.(backend.TransactionLister).Grant() + " TO this user, or set longest_transaction to what your longest one takes",
	}
}

// observe finds out how far ids are final, if that may be further than is
// known, and if it wasn't asked just now. Idle tables are not observed.
func (s *Store) observe(ctx context.Context) error {
	o := s.observed
	if o == nil {
		return nil
	}
	if o.lost() {
		if err := s.findGiven(ctx); err != nil {
			return err
		}
	}
	if o.trail != nil || !o.due(time.Now()) {
		return nil
	}
	return s.look(ctx)
}

// A check makes a few observations, for others may make theirs at the same time.
const (
	checkTries = 10
	checkPause = 400 * time.Millisecond // on average half of it
)

// observes says whether observations say something. What failed is told by what
// else is checked.
func (s *Store) observes(ctx context.Context) bool {
	for range checkTries {
		saw, err := s.lookAround(ctx)
		if saw.Number != 0 || err != nil && !s.dialect.Busy(err) {
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case <-time.After(mathrand.N(checkPause)):
		}
	}
	return false
}

// look makes an observation.
func (s *Store) look(ctx context.Context) error {
	o := s.observed
	id := o.begin(time.Now())
	saw, err := s.lookAround(ctx)
	switch {
	case s.hidden(err):
		o.trail = &trail{longest: s.longest}
		o.warning = s.unseen(err).String()
	case err != nil && !s.dialect.Busy(err):
		return fmt.Errorf("see which transactions are open beside table %s: %w", s.table, err)
	default:
		o.end(id, saw, time.Now())
	}
	return nil
}

// lookAgain makes an observation after a read, if that is worth it, and returns
// what it showed.
func (s *Store) lookAgain(ctx context.Context) (*list, error) {
	before := s.observed.latest
	pause, pays := s.observed.again(time.Now())
	if !pays {
		return nil, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(pause):
	}
	if err := s.look(ctx); err != nil || s.observed.latest == before {
		return nil, err
	}
	return s.observed.latest, nil
}

// findGiven asks for the highest id on another server than before.
func (s *Store) findGiven(ctx context.Context) error {
	given, err := s.given(ctx)
	if err != nil {
		return err
	}
	s.observed.found(given, time.Now())
	return nil
}

func (s *Store) lookAround(ctx context.Context) (backend.OpenList, error) {
	return s.backend.(backend.TransactionLister).ListOpen(ctx, rand.Text())
}
