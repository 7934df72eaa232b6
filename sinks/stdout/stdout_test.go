package stdout_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

// pipe is a writer that can fail and block.
type pipe struct {
	mu      sync.Mutex
	text    bytes.Buffer
	room    int // bytes that a Write still accepts; negative: all
	reached chan struct{}
	release chan struct{}
}

var errBroken = errors.New("broken pipe")

func (p *pipe) Write(text []byte) (int, error) {
	if release := p.stalled(); release != nil {
		<-release
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.room < 0 {
		return p.text.Write(text)
	}
	n := min(p.room, len(text))
	p.room -= n
	p.text.Write(text[:n])
	return n, errBroken
}

func (p *pipe) stalled() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reached != nil {
		close(p.reached)
		p.reached = nil
	}
	return p.release
}

func (p *pipe) stall() (<-chan struct{}, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reached, release := make(chan struct{}), make(chan struct{})
	p.reached, p.release = reached, release
	return reached, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.release = nil
		close(release)
	}
}

func (p *pipe) setRoom(room int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room = room
}

// received decodes the complete lines.
func (p *pipe) received() []outbox.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	var got []outbox.Message
	for line := range bytes.Lines(p.text.Bytes()) {
		if m, err := sinks.ReadLine(line); err == nil {
			got = append(got, m.Message)
		}
	}
	return got
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, room := range map[string]int{"broken at once": 0, "broken inside a line": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(testing.TB) sinktest.Harness {
				p := &pipe{room: -1}
				return sinktest.Harness{
					Sink: stdout.New(stdout.Options{Writer: p}), Received: p.received, Stall: p.stall,
					Break: func() { p.setRoom(room) }, Repair: func() { p.setRoom(-1) },
				}
			})
		})
	}
}

func TestKind(t *testing.T) {
	t.Parallel()
	sinktest.Kind(t, stdout.Kind(), map[string]any{})
}

func TestURL(t *testing.T) {
	t.Parallel()
	registry, err := sinks.NewRegistry(stdout.Kind())
	if err != nil {
		t.Fatal(err)
	}
	for rawURL, good := range map[string]bool{"stdout:": true, "stdout://": true, "stdout:x": false, "stdout:?a=b": false, "stdout:///x": false} {
		if _, err := registry.FromURL(rawURL); (err == nil) != good {
			t.Errorf("FromURL(%q): %v", rawURL, err)
		}
	}
}

func batch(payloads ...string) []sinks.Message {
	var batch []sinks.Message
	for _, payload := range payloads {
		batch = append(batch, sinks.Message{Message: outbox.Message{Topic: "t", Key: "k", Payload: []byte(payload)}})
	}
	return batch
}

func results(outcomes []sinks.Outcome) string {
	var names []string
	for _, o := range outcomes {
		names = append(names, o.Result.String())
	}
	return strings.Join(names, " ")
}

const lineA, lineB = `{"topic":"t","key":"k","payload":"a"}` + "\n", `{"topic":"t","key":"k","payload":"b"}` + "\n"

func TestPartialWrites(t *testing.T) {
	t.Parallel()
	tests := []struct {
		room     int
		outcomes string
		text     string // after the undelivered messages were sent again
	}{
		{0, "unavailable unavailable", lineA + lineB},
		{5, "unavailable unavailable", lineA[:5] + "\n" + lineA + lineB},
		{len(lineA) - 1, "retry unavailable", lineA + lineA + lineB}, // the newline was missing
		{len(lineA), "delivered unavailable", lineA + lineB},
		{len(lineA) + 5, "delivered unavailable", lineA + lineB[:5] + "\n" + lineB},
		{len(lineA + lineB), "delivered delivered", lineA + lineB},
	}
	for _, test := range tests {
		p := &pipe{room: test.room}
		sink := stdout.New(stdout.Options{Writer: p})
		all := batch("a", "b")
		outcomes := sink.Send(t.Context(), all)
		if got := results(outcomes); got != test.outcomes {
			t.Errorf("room for %d: %s, want %s", test.room, got, test.outcomes)
		}
		p.setRoom(-1)
		for i, o := range outcomes {
			if o.Result != sinks.Delivered {
				sink.Send(t.Context(), all[i:i+1])
			}
		}
		if got := p.text.String(); got != test.text {
			t.Errorf("room for %d:\n%swant\n%s", test.room, got, test.text)
		}
	}
}

func TestShortWriteIsAnError(t *testing.T) {
	t.Parallel()
	sink := stdout.New(stdout.Options{Writer: short{}})
	if o := sink.Send(t.Context(), batch("a"))[0]; o.Result != sinks.Retry || o.Detail != "short write" {
		t.Errorf("outcome %+v", o)
	}
}

type short struct{}

func (short) Write(text []byte) (int, error) { return len(text) - 1, nil }

func TestRejectedMessageBlocksOnlyItsKey(t *testing.T) {
	t.Parallel()
	p := &pipe{room: -1}
	sink := stdout.New(stdout.Options{Writer: p})
	all := batch("a", "x", "b")
	all[1].Key, all[1].Headers = "other", map[string]string{"h": "\xff"}
	if got := results(sink.Send(t.Context(), all)); got != "delivered reject delivered" {
		t.Error(got)
	}
	if got := results(sink.Send(t.Context(), all[1:2])); got != "reject" {
		t.Error(got)
	}
	if got := p.text.String(); got != lineA+lineB {
		t.Errorf("written:\n%s", got)
	}
}

func TestCloseWaitsForAWriteUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	p := &pipe{room: -1}
	sink := stdout.New(stdout.Options{Writer: p})
	reached, release := p.stall()
	sent := make(chan []sinks.Outcome)
	go func() { sent <- sink.Send(t.Context(), batch("a")) }()
	<-reached
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sink.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close during a write: %v", err)
	}
	release()
	if got := results(<-sent); got != "delivered" {
		t.Error(got)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Errorf("Close after the write: %v", err)
	}
}
