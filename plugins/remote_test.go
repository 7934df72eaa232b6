package plugins_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// remote is the sink of a plug-in that passes each message to a test.
type remote struct {
	url string
	fan *sinks.Fan
}

func remoteKind() sinks.Kind {
	return sinks.Kind{
		Name:    "remote",
		Summary: "Passes messages to a test.",
		Fields: []settings.Field{
			{Name: "url", Type: settings.TypeString, Required: true, Help: "Where the test listens."},
			{Name: "order", Type: settings.TypeString, Default: "prefix", Choices: []string{"none", "prefix", "atomic"}, Help: "The order that the sink promises."},
			{Name: "password", Type: settings.TypeSecret, Help: "A secret that must not appear in an outcome or an error."},
		},
		New: func(s settings.Values) (sinks.Sink, error) {
			r := &remote{url: s.Text("url") + "?" + s.Secret("password").Reveal(), fan: sinks.NewFan(4)}
			switch s.Text("order") {
			case "none":
				return struct{ sinks.Sink }{r}, nil // hides Order
			case "atomic":
				return atomic{r}, nil
			}
			return r, nil
		},
	}
}

func (r *remote) Open(ctx context.Context) error {
	if o := r.post(ctx, nil); o.Result != sinks.Delivered {
		return &sinks.OpenError{Reason: o.Reason, Detail: o.Detail}
	}
	return nil
}

func (r *remote) Close(context.Context) error {
	http.DefaultClient.CloseIdleConnections()
	return nil
}

func (r *remote) Order() sinks.Order { return sinks.OrderPrefix }

func (r *remote) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	return r.fan.Send(ctx, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome {
		return r.post(ctx, []sinks.Message{m})
	})
}

// atomic delivers all messages of a batch or none.
type atomic struct{ *remote }

func (atomic) Order() sinks.Order { return sinks.OrderAtomic }

func (a atomic) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))
	}
	o := a.post(ctx, batch)
	outcomes := sinks.All(len(batch), o)
	if o.Result == sinks.Reject {
		outcomes = sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, ""))
		outcomes[0] = o // the suite expects the rejection first
	}
	return outcomes
}

var meanings = map[int]sinks.Outcome{
	http.StatusOK:                  sinks.Ok("taken"),
	http.StatusUnprocessableEntity: {Result: sinks.Reject, Reason: sinks.ReasonRefused},
	http.StatusInternalServerError: {Result: sinks.Retry, Reason: sinks.ReasonServerError},
	http.StatusServiceUnavailable:  {Result: sinks.Unavailable, Reason: sinks.ReasonThrottled},
}

func (r *remote) post(ctx context.Context, batch []sinks.Message) sinks.Outcome {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(letters(batch)); err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, &body)
	if err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, err.Error())
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	o := meanings[response.StatusCode]
	if o.Result != sinks.Delivered {
		o.Detail = string(text)
	}
	return o
}

// letter is a message in the form in which remote sends it to the test. gob decodes an
// empty payload as nil, so Empty marks an empty payload.
type letter struct {
	Message sinks.Message
	Empty   bool
}

func letters(batch []sinks.Message) []letter {
	packed := make([]letter, len(batch))
	for i, m := range batch {
		packed[i] = letter{m, m.Payload != nil && len(m.Payload) == 0}
	}
	return packed
}

func opened(text []byte) ([]sinks.Message, error) {
	var packed []letter
	err := gob.NewDecoder(bytes.NewReader(text)).Decode(&packed)
	batch := make([]sinks.Message, len(packed))
	for i, l := range packed {
		if batch[i] = l.Message; l.Empty {
			batch[i].Payload = []byte{}
		}
	}
	return batch, err
}

// destination receives the messages of remotes.
type destination struct {
	url string

	mu      sync.Mutex
	down    bool
	answers map[string]sinks.Result
	arrived []outbox.Message
	ids     map[string]bool // the ids of the messages that have arrived
	reached chan struct{}
	release chan struct{}
}

func newDestination(t testing.TB) *destination {
	d := &destination{answers: map[string]sinks.Result{}, ids: map[string]bool{}}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	batch, err := opened(text)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if release := d.stalled(len(batch) > 0); release != nil {
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w.WriteHeader(d.judge(batch))
	_, _ = io.WriteString(w, "so it is, "+r.URL.RawQuery)
}

func (d *destination) judge(batch []sinks.Message) int {
	if d.down {
		return http.StatusServiceUnavailable
	}
	for _, m := range batch {
		switch d.answers[m.ID] {
		case sinks.Reject:
			return http.StatusUnprocessableEntity
		case sinks.Retry:
			if _, told := d.answers[m.ID]; told {
				return http.StatusInternalServerError
			}
		}
	}
	for _, m := range batch {
		d.arrived, d.ids[m.ID] = append(d.arrived, m.Message), true
	}
	return http.StatusOK
}

func (d *destination) stalled(messages bool) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if messages && d.reached != nil {
		close(d.reached)
		d.reached = nil
	}
	return d.release
}

func (d *destination) stall() (<-chan struct{}, func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reached, release := make(chan struct{}), make(chan struct{})
	d.reached, d.release = reached, release
	return reached, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.release = nil
		close(release)
	}
}

func (d *destination) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *destination) received() (got []outbox.Message) {
	d.set(func() { got = slices.Clone(d.arrived) })
	return got
}

// distinct returns the number of different messages that have arrived.
func (d *destination) distinct() (n int) {
	d.set(func() { n = len(d.ids) })
	return n
}

func (d *destination) answer(id string, result sinks.Result) {
	d.set(func() { d.answers[id] = result })
}
