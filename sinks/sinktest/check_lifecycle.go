package sinktest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"runtime/pprof"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// openAgain checks that Open may be called on an open sink, and that the sink then works as
// before.
func openAgain(s *subject) {
	ctx := s.opened()
	var sent []sinks.Message
	for range 3 {
		batch := s.batch("a", "")
		s.deliver(ctx, batch)
		sent = append(sent, batch...)
		if err := s.open(ctx); err != nil {
			s.t.Errorf("Open of a sink that is open: %v", err)
		}
	}
	if s.Received != nil {
		s.arrivedOnce(s.arrivals(ids(sent)), sent)
	}
}

// closeWithoutOpen checks that a sink that was never opened can be closed.
func closeWithoutOpen(s *subject) { s.close(context.Background()) }

// noGoroutineLeft checks that Close ends the goroutines that Open and Send have started,
// even after an outage. A pprof label identifies these goroutines: a goroutine inherits the
// label from the goroutine that starts it.
func noGoroutineLeft(s *subject) {
	label := rand.Text()
	lived := make(chan struct{})
	go pprof.Do(context.Background(), pprof.Labels("sinktest", label), func(ctx context.Context) {
		defer close(lived)
		s.live(ctx)
	})
	<-lived
	var left string
	defer func() { s.t.Logf("goroutines left: %s", cmp.Or(left, "none")) }()
	s.eventually("the goroutines that the sink has started end", func() bool {
		left = goroutines(label)
		return left == ""
	})
}

// live opens the sink, sends messages, and causes an outage if the harness can.
func (s *subject) live(ctx context.Context) {
	defer s.close(ctx)
	if err := s.open(ctx); err != nil {
		s.t.Errorf("Open: %v", err)
		return
	}
	s.deliver(ctx, s.batch("a", "b", "", ""))
	if s.Break == nil || s.Repair == nil {
		return
	}
	unlabelled(ctx, s.Break)
	s.send(ctx, s.batch("a", "b"))
	_ = s.open(ctx) // it may succeed or fail
	unlabelled(ctx, s.Repair)
}

// unlabelled runs f without the goroutine's label, so that the goroutines that the
// harness starts don't count as the sink's.
func unlabelled(ctx context.Context, f func()) {
	pprof.SetGoroutineLabels(context.Background())
	defer pprof.SetGoroutineLabels(ctx)
	f()
}

// goroutines describes the goroutines with the label, or returns "".
func goroutines(label string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	var found []string
	for record := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(record, label) {
			found = append(found, record)
		}
	}
	return strings.Join(found, "\n")
}

// limitsMakeSense checks that the sink's limits and order are valid.
func limitsMakeSense(s *subject) {
	limits := s.limits()
	if limits.Messages < 0 || limits.Bytes < 0 || limits.Workers < 0 {
		s.t.Errorf("a limit is negative: %+v", limits)
	}
	if order := s.order(); order < sinks.OrderNone || order > sinks.OrderAtomic {
		s.t.Errorf("the order is %d, which is not valid", order)
	}
	s.close(context.Background())
}
