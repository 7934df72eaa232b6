package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/sinks"
)

// If all messages of a subject have the same key (or the same id), a message is stored only once, even after the stream
// has forgotten its id. Each request names the expected sequence of the subject's last message, and the stream refuses
// the message if the subject's last message has another sequence. So the plug-in notices when another relay has stored a
// message of the key. The stored messages of a subject form a linked list: the header of each message has the sequence of the
// previous message, and its own position in the outbox table. If a relay died before it recorded some deliveries, their
// messages are at the end of the list, because later messages of the key have waited for them.

// known describes the end of a subject's list, as far as the sink knows it.
type known struct {
	last   uint64            // the sequence of the subject's last message; 0 if the subject has no message
	newest int64             // the last message's position in the table
	found  map[string]uint64 // the sequences of messages near the end of the list, by their ids
}

// subjects has the known subjects. Forgetting a subject costs two more requests for
// its next message.
type subjects struct {
	mu    sync.Mutex
	known map[string]*known
}

const maxKnown = 1 << 16

func (s *subjects) get(subject string) known {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.known[subject]; k != nil {
		return *k
	}
	return known{}
}

func (s *subjects) set(subject string, k known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[subject] = &k
}

// attempts limits how often store publishes a message. store tries again if another program has published to the subject.
const attempts = 4

// store publishes a message, unless the stream already has it. It returns the message's sequence in
// the stream.
func (s *sink) store(ctx context.Context, link *link, m *sinks.Message, message *nats.Msg) (uint64, error) {
	if !s.subject.own {
		return link.publish(ctx, message)
	}
	subject, id := message.Subject, message.Header.Get(jetstream.MsgIDHeader)
	message.Header[sequenceHeader] = []string{strconv.FormatInt(m.Sequence, 10)}
	for attempt := 1; ; attempt++ {
		k := s.subjects.get(subject)
		if k.last > 0 && m.Sequence <= k.newest { // an earlier attempt may have stored it
			if sequence, found := k.found[id]; found {
				return sequence, nil
			}
			var err error
			if k, err = link.lookBack(ctx, subject, m, id); err != nil {
				return 0, err
			}
			s.subjects.set(subject, k)
			if sequence, found := k.found[id]; found {
				return sequence, nil
			}
		}
		message.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(k.last, 10)}
		stored, err := link.publish(ctx, message)
		if err == nil {
			s.subjects.set(subject, known{last: stored, newest: m.Sequence})
			return stored, nil
		}
		if !isWrongLast(err) || attempt == attempts {
			return 0, err
		}
		if k, err = link.lookBack(ctx, subject, m, id); err != nil {
			return 0, err
		}
		s.subjects.set(subject, k)
		if sequence, found := k.found[id]; found {
			return sequence, nil
		}
	}
}

func isWrongLast(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) &&
		(refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Limits of lookBack: the number of messages that it reads, and the assumed maximum difference between the clocks of the
// database and the server. A relay has fewer than maxLookBack messages of a key in flight, so only a requeued old
// message may be further from the end of the list.
const (
	maxLookBack = 10_000
	clockError  = time.Hour
)

// lookBack searches a subject's list for the message m, which has this id. It reads the list from its end until it finds m,
// reaches messages that were written before m, or has read maxLookBack messages.
func (l *link) lookBack(ctx context.Context, subject string, m *sinks.Message, id string) (known, error) {
	at, err := l.lastOn(ctx, subject)
	if err != nil {
		return known{}, fmt.Errorf("read the last message of the subject: %w", err)
	}
	k := known{last: at.Sequence, newest: position(at), found: map[string]uint64{}}
	for range maxLookBack {
		if at.Sequence == 0 || position(at) < m.Sequence || at.Time.Before(m.CreatedAt.Add(-clockError)) {
			break
		}
		its := at.Header.Get(jetstream.MsgIDHeader)
		k.found[its] = at.Sequence
		previous, err := strconv.ParseUint(at.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
		if its == id || err != nil || previous == 0 {
			break
		}
		if at, err = l.message(ctx, previous); err != nil {
			return known{}, fmt.Errorf("read a message of the subject: %w", err)
		}
	}
	return k, nil
}

// position returns a stored message's position in the outbox table, or -1 if another program has stored the message.
func position(stored *jetstream.RawStreamMsg) int64 {
	n, err := strconv.ParseInt(stored.Header.Get(sequenceHeader), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
