package httpsink

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/sinks"
)

// arrays is the state of one Send that groups messages into arrays. As with [sinks.Fan],
// if a message is not delivered, no later message with its key is sent.
type arrays struct {
	sink     *Sink
	round    *round
	batch    []sinks.Message
	pieces   []piece
	outcomes []sinks.Outcome
	slowest  atomic.Int64 // duration of the longest request so far, in nanoseconds

	mu      sync.Mutex
	stopped map[string]bool // keys with a message that was not delivered
	down    bool
}

func (s *Sink) sendArrays(ctx context.Context, r *round, batch []sinks.Message) []sinks.Outcome {
	a := &arrays{
		sink: s, round: r, batch: batch, pieces: make([]piece, len(batch)),
		outcomes: make([]sinks.Outcome, len(batch)), stopped: map[string]bool{},
	}
	for left := a.prepare(); len(left) > 0; {
		var groups [][]int
		groups, left = a.group(left)
		var posts sync.WaitGroup
		for _, group := range groups {
			posts.Go(func() { a.post(ctx, group) })
		}
		posts.Wait()
	}
	return a.outcomes
}

// prepare rejects the messages that can't be sent and returns the others.
func (a *arrays) prepare() (left []int) {
	for i := range a.batch {
		var err error
		if a.pieces[i], err = a.sink.pieceOf(i, &a.batch[i]); err != nil {
			a.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error()))
		} else {
			left = append(left, i)
		}
	}
	return left
}

// group puts messages that can share an array into groups. If the messages of a key need several
// arrays, group puts only the messages for the first array into a group, and returns the others for the next call.
func (a *arrays) group(messages []int) (groups [][]int, left []int) {
	at, of, waits := map[string]int{}, map[string]string{}, map[string]bool{}
	for _, i := range messages {
		key, with := a.batch[i].Key, a.pieces[i].with
		if key != "" && (waits[key] || of[key] != "" && of[key] != with) {
			waits[key] = true
			left = append(left, i)
			continue
		}
		of[key] = with
		if _, known := at[with]; !known {
			at[with] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[with]] = append(groups[at[with]], i)
	}
	return groups, left
}

// post sends an array. If one of its messages may be the cause of an error, post sends
// each half separately, until it has found that message.
func (a *arrays) post(ctx context.Context, group []int) {
	if group = a.free(group); len(group) == 0 {
		return
	}
	o, status := a.request(ctx, group)
	if half := len(group) / 2; half > 0 && isolates(status, o) {
		a.post(ctx, group[:half])
		a.post(ctx, group[half:])
		return
	}
	for _, i := range group {
		a.settle(i, a.sink.orGiveUp(a.batch[i], o))
	}
}

// isolates reports whether one of the messages may be the cause of an error, rather than
// the endpoint, the credentials or the address.
func isolates(status int, o sinks.Outcome) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusProxyAuthRequired, http.StatusGone, http.StatusUpgradeRequired, http.StatusMisdirectedRequest:
		return false
	}
	return status >= 400 && (o.Result == sinks.Reject || o.Reason == sinks.ReasonServerError)
}

// free settles the messages of a group that must not be sent any more, and returns
// the others.
func (a *arrays) free(group []int) (free []int) {
	for _, i := range group {
		if a.stops(a.batch[i].Key) {
			a.settle(i, sinks.Blocked())
		} else {
			free = append(free, i)
		}
	}
	return free
}

func (a *arrays) stops(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.down || key != "" && a.stopped[key]
}

// settle stores a message's outcome. If an earlier message with the same key was not
// delivered, settle stores [sinks.Blocked] instead.
func (a *arrays) settle(i int, o sinks.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := a.batch[i].Key
	if key != "" && a.stopped[key] {
		o = sinks.Blocked()
	}
	a.outcomes[i] = o
	a.down = a.down || o.Result == sinks.Unavailable
	if o.Result != sinks.Delivered {
		a.stopped[key] = true
	}
}

// request sends an array and returns its outcome and the status of the answer. The
// status is 0 if there is no answer.
func (a *arrays) request(ctx context.Context, group []int) (o sinks.Outcome, status int) {
	select {
	case a.sink.slots <- struct{}{}:
		defer func() { <-a.sink.slots }()
	case <-ctx.Done():
	}
	deadline, bounded := ctx.Deadline()
	if ctx.Err() != nil || bounded && time.Until(deadline) < time.Duration(a.slowest.Load()) {
		return sinks.Cancelled(), 0
	}
	pieces, ids := make([]piece, len(group)), make([]string, len(group))
	for n, i := range group {
		pieces[n], ids[n] = a.pieces[i], a.batch[i].ID
	}
	c := a.sink.arrayOf(pieces, ids)
	c.status = &status
	c.again = slices.ContainsFunc(group, func(i int) bool { return a.batch[i].Attempt > 1 })
	start := time.Now()
	o = a.sink.make(ctx, a.round, c)
	a.slowest.Store(max(a.slowest.Load(), int64(time.Since(start)))) // a concurrent update may be lost, but an estimate is enough
	return o, status
}

// headerCount is the header with the number of messages in an array.
const headerCount = "Rowrelay-Count"

// element is a message in an array without CloudEvents. Its members have the same
// names as in [sinks.WriteLine]. The payload is embedded as JSON if it is JSON, and
// otherwise encoded in base64; a NULL payload is omitted.
type element struct {
	MessageID     string            `json:"message_id"`
	Topic         string            `json:"topic"`
	Key           string            `json:"key,omitempty"`
	Payload       json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitzero"`
	Headers       map[string]string `json:"headers,omitempty"`
	Attempt       int               `json:"attempt"`
	CreatedAt     time.Time         `json:"created_at,omitzero"`
}

// piece is a message prepared for an array.
type piece struct {
	call        // the URL, the headers of Options.MessageHeaders and, as the body, the element of the array
	with string // two pieces can share an array if this value is the same in both
}

// pieceOf prepares a message. A message that was tried before gets its own array,
// so that if the request fails, only this message can be the cause.
func (s *Sink) pieceOf(i int, m *sinks.Message) (p piece, err error) {
	if p.url, err = s.target.of(m); err != nil {
		return p, fmt.Errorf("the url %w", err)
	}
	p.header = http.Header{}
	if err := s.fill(p.header, m); err != nil {
		return p, err
	}
	p.with = fmt.Sprintf("%s\n%q", p.url, p.header) // fmt prints maps in the order of their keys
	if m.Attempt > 1 {
		p.with = strconv.Itoa(i)
	}
	p.body, err = s.element(*m)
	return p, err
}

func (s *Sink) element(m sinks.Message) ([]byte, error) {
	if s.events != nil {
		event, err := s.events.Message(m)
		return event.Payload, err
	}
	if err := sinks.CheckUTF8(m); err != nil {
		return nil, err
	}
	e := element{MessageID: m.ID, Topic: m.Topic, Key: m.Key, Headers: m.Headers, Attempt: m.Attempt, CreatedAt: m.CreatedAt.UTC()}
	if utf8.Valid(m.Payload) && json.Valid(m.Payload) {
		e.Payload = m.Payload
	} else {
		e.PayloadBase64 = m.Payload
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), err
}

// arrayOf combines several pieces into one request.
func (s *Sink) arrayOf(pieces []piece, ids []string) call {
	bodies := make([][]byte, len(pieces))
	for i, p := range pieces {
		bodies[i] = p.body
	}
	c := call{url: pieces[0].url, header: s.secrets.Load().static.Clone()}
	c.body = append(append([]byte("["), bytes.Join(bodies, []byte(","))...), ']')
	switch {
	case s.contentType != "":
		c.header.Set("Content-Type", s.contentType)
	case s.events != nil:
		c.header.Set("Content-Type", "application/cloudevents-batch+json")
	default:
		c.header.Set("Content-Type", "application/json")
	}
	for name, values := range pieces[0].header {
		c.header[name] = values
	}
	id := arrayID(ids)
	c.of = id
	c.header.Set(headerID, percentEncode(id))
	c.header.Set(headerCount, strconv.Itoa(len(pieces)))
	s.sign(c.header, id, c.body)
	hideIdempotency(c.header)
	return c
}

// arrayID returns the id of an array. If the array has one message, that is the message's
// id. Otherwise it is a hash of the messages' ids in their order.
func arrayID(ids []string) string {
	if len(ids) == 1 {
		return ids[0]
	}
	hash := sha256.New()
	for _, id := range ids {
		fmt.Fprintf(hash, "%d:%s", len(id), id)
	}
	return "array-" + hex.EncodeToString(hash.Sum(nil)[:16])
}
