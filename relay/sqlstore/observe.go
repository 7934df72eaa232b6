package sqlstore

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// defaultLongestTransaction is long for a transaction that writes a message,
// and not long to wait for one's place.
const defaultLongestTransaction = time.Minute

// beginObserving makes the first observation, which shows whether there can be
// any: where the user may not see transactions, or where it tells nothing, ids
// are final after a time.
func (s *Store) beginObserving(ctx context.Context, given int64, unordered bool) error {
	observing, ok := s.dialect.(dialect.Observing)
	if !ok {
		return nil
	}
	s.observed = newObserved(given, time.Now())
	if unordered {
		s.observed.trail = &trail{longest: s.longest}
		return nil
	}
	_, err := s.lookAround(ctx, observing)
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
	grant := "PROCESS ON *.*"
	if granted, ok := s.dialect.(dialect.Granted); ok {
		grant = granted.Grant()
	}
	return Finding{
		Name:   "open transactions",
		Detail: fmt.Sprintf("this user may not see them (%v): rows of transactions that are open for more than %v keep no order", err, s.longest),
		Hint:   "have an administrator run GRANT " + grant + " TO this user, or set longest_transaction to what your longest one takes",
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
		saw, err := s.lookAround(ctx, s.dialect.(dialect.Observing))
		if saw.number != 0 || err != nil && !s.dialect.Busy(err) {
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
	saw, err := s.lookAround(ctx, s.dialect.(dialect.Observing))
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

func (s *Store) lookAround(ctx context.Context, observing dialect.Observing) (saw observation, err error) {
	err = s.answer(ctx, observing.Observe(s.table, rand.Text()), func(db querier, query dialect.Query) ([]int64, error) {
		var word, text string
		var wrong error
		err := all(ctx, db, query, func() {
			if err := saw.take(word, text); err != nil {
				wrong = err
			}
		}, &word, &text)
		if err == nil {
			err = wrong
		}
		return nil, err
	})
	if err != nil {
		return observation{}, err // a list that broke off says nothing
	}
	return saw, nil
}

// take reads a line of the answer.
func (o *observation) take(word, text string) (err error) {
	var number uint64
	switch word {
	case "server":
		o.server = text
		return nil
	case "all":
		o.all = true
		return nil
	}
	if number, err = strconv.ParseUint(text, 10, 64); err != nil {
		return fmt.Errorf("read the number of a transaction: %w", err)
	}
	switch word {
	case "number":
		o.number = number
	case "ending":
		o.ending = append(o.ending, number)
	default:
		o.open = append(o.open, number)
	}
	return nil
}
