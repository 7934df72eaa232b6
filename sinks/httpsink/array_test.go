package httpsink_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// arrayEndpoint is an endpoint for arrays: it accepts all messages of an array or
// none.
type arrayEndpoint struct{ *endpoint }

// arrived is an element of an array, decoded as README.md describes.
type arrived struct {
	MessageID     string            `json:"message_id"`
	Topic         string            `json:"topic"`
	Key           string            `json:"key"`
	Payload       json.RawMessage   `json:"payload"`
	PayloadBase64 []byte            `json:"payload_base64"`
	Headers       map[string]string `json:"headers"`
	Attempt       int               `json:"attempt"`
	CreatedAt     time.Time         `json:"created_at"`
}

func (a arrived) message() outbox.Message {
	m := outbox.Message{ID: a.MessageID, Topic: a.Topic, Key: a.Key, Payload: a.PayloadBase64, Headers: a.Headers}
	if a.Payload != nil {
		m.Payload = a.Payload
	}
	return m
}

func elementsOf(r *http.Request) (elements []arrived, err error) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &elements)
	}
	return elements, err
}

func (e arrayEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	elements, err := elementsOf(r)
	if release := e.stalled(); release != nil {
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	answers := func(result sinks.Result) bool {
		return slices.ContainsFunc(elements, func(a arrived) bool { given, ok := e.answers[a.MessageID]; return ok && given == result })
	}
	switch {
	case err != nil:
		repeat(w, r, http.StatusBadRequest)
	case e.down:
		repeat(w, r, http.StatusServiceUnavailable)
	case answers(sinks.Reject):
		repeat(w, r, http.StatusUnprocessableEntity)
	case answers(sinks.Retry):
		repeat(w, r, http.StatusInternalServerError)
	default:
		for _, a := range elements {
			e.arrived = append(e.arrived, a.message())
		}
	}
}

func TestConformanceArrays(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		e := arrayEndpoint{newEndpoint()}
		sink := newUnclosed(t, httpsink.Options{URL: "http://" + newServer(t, e).address, BearerToken: token, Array: true, SigningSecret: oldSecret})
		return sinktest.Harness{
			Sink: sink, Received: e.received, Stall: e.stall, Answer: e.answer, Secrets: []string{token},
			Break:  func() { e.set(func() { e.down = true }) },
			Repair: func() { e.set(func() { e.down = false }) },
		}
	})
}

// posted is an array that has arrived.
type posted struct {
	header   http.Header
	path     string
	elements []arrived
	status   int
}

// posting is a server that records the arrays it receives and answers with a status.
func posting(t *testing.T, status func([]arrived) int) (string, func() []posted) {
	t.Helper()
	var mu sync.Mutex
	var got []posted
	url := answering(t, func(w http.ResponseWriter, r *http.Request) {
		elements, err := elementsOf(r)
		if err != nil {
			t.Errorf("the body is not an array: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		answer := status(elements)
		got = append(got, posted{r.Header, r.URL.Path, elements, answer})
		w.WriteHeader(answer)
		fmt.Fprint(w, "about ", len(elements))
	})
	return url, func() []posted { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
}

func ok([]arrived) int { return http.StatusOK }

func TestArrayRequest(t *testing.T) {
	t.Parallel()
	url, got := posting(t, ok)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	messages := []outbox.Message{
		{ID: "1", Topic: "orders", Key: "k", Payload: []byte(`{"a": "<ü>", "n": 12345678901234567890}`), Headers: map[string]string{"Host": "any"}},
		{ID: "2", Topic: "orders", Payload: []byte("not JSON")},
		{ID: "3", Topic: "orders"},
		{ID: "4", Topic: "orders", Payload: []byte{}},
		{ID: "5", Topic: "orders", Payload: []byte("null")},
		{ID: "6", Topic: "orders", Payload: []byte("\"\xff\"")},
	}
	var batch []sinks.Message
	for _, m := range messages {
		batch = append(batch, sinks.Message{Message: m, Attempt: 1, CreatedAt: at})
	}
	sink := newSink(t, httpsink.Options{URL: url + "/hooks", Array: true})
	for _, o := range sink.Send(t.Context(), batch) {
		if o != sinks.Ok("200") {
			t.Errorf("%+v", o)
		}
	}
	requests := got()
	if len(requests) != 1 || len(requests[0].elements) != len(batch) {
		t.Fatalf("%d requests: %+v", len(requests), requests)
	}
	payloads := []string{`{"a":"<ü>","n":12345678901234567890}`, "", "", "", "null", ""}
	binary := []string{"", "not JSON", "", "", "", "\"\xff\""}
	for i, e := range requests[0].elements {
		if e.MessageID != messages[i].ID || e.Topic != "orders" || e.Attempt != 1 || !e.CreatedAt.Equal(at) || string(e.Payload) != payloads[i] ||
			string(e.PayloadBase64) != binary[i] || (e.PayloadBase64 == nil) == (i == 3) && binary[i] == "" {
			t.Errorf("element %d: %+v", i, e)
		}
	}
	if e := requests[0].elements[0]; e.Key != "k" || e.Headers["Host"] != "any" {
		t.Errorf("%+v", e)
	}
	header := requests[0].header
	if id := header.Get("Idempotency-Key"); header.Get("Rowrelay-Count") != "6" || header.Get("Content-Type") != "application/json" || !strings.HasPrefix(id, "array-") {
		t.Errorf("the header is %v", header)
	}
	sink.Send(t.Context(), batch)
	sink.Send(t.Context(), batch[:2])
	sink.Send(t.Context(), batch[:1])
	ids := []string{}
	for _, p := range got() {
		ids = append(ids, p.header.Get("Idempotency-Key"))
	}
	if ids[1] != ids[0] || ids[2] == ids[0] || ids[3] != "1" {
		t.Errorf("the ids are %v; want equal ids for equal messages, and the message's id for a single message", ids)
	}
}

// The refused message is found by halving the array, and only it is charged. Later messages of its
// key wait; all others are delivered.
func TestRefusedMessageIsIsolatedByHalving(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]sinks.Result{400: sinks.Reject, 413: sinks.Reject, 422: sinks.Reject, 500: sinks.Retry} {
		for poison := range 20 {
			url, got := posting(t, func(elements []arrived) int {
				if slices.ContainsFunc(elements, func(a arrived) bool { return a.MessageID == fmt.Sprint(poison) }) {
					return status
				}
				return http.StatusOK
			})
			var batch []sinks.Message
			for n := range 20 {
				m := message(fmt.Sprint("k", n%4))
				m.ID = fmt.Sprint(n)
				batch = append(batch, m)
			}
			sink := newUnclosed(t, httpsink.Options{URL: url, Array: true})
			for i, o := range sink.Send(t.Context(), batch) {
				switch behind := i > poison && i%4 == poison%4; {
				case i == poison && (o.Result != want || !strings.HasSuffix(o.Detail, "about 1")):
					t.Errorf("%d, refused %d: %+v", status, poison, o)
				case behind && o != sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, ""):
					t.Errorf("%d, message %d after the refused %d: %+v", status, i, poison, o)
				case i != poison && !behind && o.Result != sinks.Delivered:
					t.Errorf("%d, message %d with the refused %d: %+v", status, i, poison, o)
				}
			}
			if n := len(got()); n > 11 {
				t.Errorf("%d requests for one refused message of 20", n)
			}
			check(t, sink.Close(t.Context()))
		}
	}
}

// The sink doesn't halve an array after one of these answers.
func TestAnswersForAllMessagesAreNotSplit(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]sinks.Result{
		401: sinks.Retry, 403: sinks.Retry, 404: sinks.Retry, 405: sinks.Reject, 410: sinks.Reject, 307: sinks.Retry,
		429: sinks.Unavailable, 503: sinks.Unavailable, 408: sinks.Retry,
	} {
		url, got := posting(t, func([]arrived) int { return status })
		sink := newUnclosed(t, httpsink.Options{URL: url, Array: true})
		outcomes := sink.Send(t.Context(), []sinks.Message{message("a"), message("b"), message("a"), message("")})
		for i, o := range outcomes {
			if i == 2 && o.Result != sinks.Unsent || i != 2 && o.Result != want {
				t.Errorf("%d, message %d: %+v", status, i, o)
			}
		}
		if n := len(got()); n != 1 {
			t.Errorf("%d: %d requests", status, n)
		}
		check(t, sink.Close(t.Context()))
	}
}

// Messages for different URLs are in different arrays. While a message is in an unanswered array,
// later messages of its key wait. A message that was tried before is sent alone.
func TestArraysAreGroupedByURL(t *testing.T) {
	t.Parallel()
	url, got := posting(t, ok)
	sink := newSink(t, httpsink.Options{URL: url + "/{topic}", Array: true, MessageHeaders: map[string]string{"X-Tenant": "{header:tenant}"}})
	var batch []sinks.Message
	add := func(topic, key, tenant string, attempt int) {
		m := message(key)
		m.ID, m.Topic, m.Headers, m.Attempt = fmt.Sprint(len(batch)), topic, map[string]string{"tenant": tenant}, attempt
		batch = append(batch, m)
	}
	add("a", "k", "1", 1)
	add("b", "k", "1", 1) // after 0
	add("a", "k", "1", 1) // after 1
	add("a", "j", "1", 1) // with 0
	add("a", "", "2", 1)  // another header
	add("a", "i", "1", 2) // alone
	add("a", "", "", 1)   // can't fill the header
	for i, o := range sink.Send(t.Context(), batch) {
		if want := i != 6; want != (o.Result == sinks.Delivered) || !want && o.Reason != sinks.ReasonInvalid {
			t.Errorf("message %d: %+v", i, o)
		}
	}
	var seen []string
	for _, p := range got() {
		line := p.path + " " + p.header.Get("X-Tenant")
		for _, e := range p.elements {
			line += " " + e.MessageID
		}
		seen = append(seen, line)
	}
	slices.Sort(seen[:3]) // the first arrays are sent concurrently
	if want := []string{"/a 1 0 3", "/a 1 5", "/a 2 4", "/b 1 1", "/a 1 2"}; !slices.Equal(seen, want) {
		t.Errorf("the arrays are %q, want %q", seen, want)
	}
}

func TestArraysOfCloudEvents(t *testing.T) {
	t.Parallel()
	var contentType string
	var events []map[string]any
	url := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		contentType = r.Header.Get("Content-Type")
		check(t, json.NewDecoder(r.Body).Decode(&events))
	})
	sink := newSink(t, httpsink.Options{URL: url, Array: true, CloudEvents: cloudevents.Options{Mode: cloudevents.Structured, Source: "/shop"}})
	sink.Send(t.Context(), []sinks.Message{message("a"), message("b")})
	if contentType != "application/cloudevents-batch+json" || len(events) != 2 || events[1]["subject"] != "b" || events[0]["specversion"] != "1.0" {
		t.Errorf("%s: %v", contentType, events)
	}
	_, err := httpsink.New(httpsink.Options{URL: url, Array: true, CloudEvents: cloudevents.Options{Mode: cloudevents.Binary, Source: "/shop"}})
	if err == nil || !strings.Contains(err.Error(), "an array can't have CloudEvents in binary mode") {
		t.Error(err)
	}
}

// boundedSink computes how many requests the batches of a relay may need: one each, and twice the
// number of halvings for the batch with the refused message. The number of batches depends on
// timing.
type boundedSink struct {
	*httpsink.Sink
	requests atomic.Int64
}

func (s *boundedSink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	s.requests.Add(1)
	if slices.ContainsFunc(batch, func(m sinks.Message) bool { return m.Headers["number"] == "77" }) {
		s.requests.Add(2 * int64(bits.Len(uint(len(batch)-1))))
	}
	return s.Sink.Send(ctx, batch)
}

// All messages arrive once, in order per key, in few requests. Only the refused message is parked,
// with the endpoint's answer.
func TestRelaySendsArraysInOrder(t *testing.T) {
	t.Parallel()
	url, got := posting(t, func(elements []arrived) int {
		if slices.ContainsFunc(elements, func(a arrived) bool { return a.Headers["number"] == "77" }) {
			return http.StatusUnprocessableEntity
		}
		return http.StatusOK
	})
	d := newTable(t)
	var messages []outbox.Message
	for n := range 300 {
		messages = append(messages, to("", fmt.Sprint("k", n%10), n))
	}
	d.write(messages...)
	sink := &boundedSink{Sink: newUnclosed(t, httpsink.Options{URL: url, Array: true})}
	d.relay(relay.Options{Sinks: map[string]relay.SinkOptions{"http": {Sink: sink, MaxAttempts: 2, JudgeAloneAfter: relay.JudgeAtOnce}}})
	d.eventually("all messages are delivered or parked", func() bool { c := d.counts(); return c[storage.StateDone] == 299 && c[storage.StateError] == 1 })
	parked := d.list(storage.StateError)[0]
	if parked.Message.Headers["number"] != "77" || parked.LastError != "refused: 422 Unprocessable Entity: about 1" {
		t.Errorf("parked is %v with %q", parked.Message.Headers, parked.LastError)
	}
	last, count := map[string]int{}, 0
	for _, p := range got() {
		if p.status != http.StatusOK {
			continue
		}
		for _, e := range p.elements {
			var n int
			_, err := fmt.Sscan(e.Headers["number"], &n)
			check(t, err)
			if before, known := last[e.Key]; known && n <= before {
				t.Errorf("of key %s, %d arrived after %d", e.Key, n, before)
			}
			last[e.Key] = n
			count++
		}
	}
	if most := int(sink.requests.Load()); count != 299 || len(got()) > most {
		t.Errorf("%d messages arrived in %d requests, want at most %d", count, len(got()), most)
	}
}
