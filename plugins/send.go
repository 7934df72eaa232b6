package plugins

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

var (
	cancelled = sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, "")
	neighbour = sinks.Fail(sinks.Unsent, sinks.ReasonNeighbour, "")
	noOutcome = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the plug-in gave no outcome for this message")
)

// Send hands a batch to the plug-in, in as many parts as the plug-in asks for,
// and one after the other, so that the order is kept.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	s.mu.Lock()
	d := &delivery{sink: s, process: s.process, promised: s.promise, batch: batch, outcomes: make([]sinks.Outcome, len(batch))}
	s.mu.Unlock()
	for d.at < len(batch) {
		part := d.next(ctx)
		if len(part.messages) > 0 {
			d.hand(ctx, part)
		}
	}
	for i, o := range d.outcomes {
		if o.Detail != "" || o.Receipt != "" {
			d.outcomes[i].Detail, d.outcomes[i].Receipt = s.redact.Redact(o.Detail), s.redact.Redact(o.Receipt)
		}
	}
	return d.outcomes
}

// hand hands a part to the plug-in and notes what became of it.
func (d *delivery) hand(ctx context.Context, part part) {
	if !d.promised.enter(ctx) {
		d.note(part, func(int) sinks.Outcome { return cancelled })
		return
	}
	defer d.promised.leave()
	response, err := d.process.send(ctx, &pluginv1.SendRequest{SendId: d.sink.lastSend.Add(1), Messages: part.wire})
	if err != nil {
		failed := d.failed(ctx, part, err)
		d.note(part, func(int) sinks.Outcome { return failed })
		return
	}
	if d.sink.suspects.any() {
		d.sink.suspects.clear(part.ids(d.batch))
	}
	d.answered(part, response.GetOutcomes())
}

// answered notes what the plug-in has answered: one outcome a message. It may have
// too few.
func (d *delivery) answered(part part, outcomes []*pluginv1.Outcome) {
	d.note(part, func(i int) sinks.Outcome {
		if i >= len(outcomes) {
			return noOutcome
		}
		return outcomeFromWire(outcomes[i])
	})
}

// failed is the outcome of a part that the plug-in didn't answer for.
func (d *delivery) failed(ctx context.Context, part part, err error) sinks.Outcome {
	switch {
	case d.process.hasEnded(err):
		d.sink.suspects.add(part.ids(d.batch))
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, d.process.fate().Error())
	case ctx.Err() != nil:
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "the plug-in has not answered in time")
	case status.Code(err) == codes.ResourceExhausted && len(part.messages) == 1:
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, "the plug-in can't take a message of this size: "+said(err).Error())
	case status.Code(err) == codes.Unavailable:
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the connection to the plug-in broke: "+said(err).Error())
	}
	return sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "the plug-in answered with an error: "+said(err).Error())
}

// hasEnded says whether the process has ended, where a call has failed. The
// connection may be lost a little before that is known.
func (p *process) hasEnded(err error) bool {
	if status.Code(err) != codes.Unavailable {
		return !p.alive()
	}
	return p.endsSoon()
}

// endsSoon waits a little for the end of a process of which other signs were
// seen.
func (p *process) endsSoon() bool {
	timer := time.NewTimer(drainGrace + time.Second)
	defer timer.Stop()
	select {
	case <-p.gone():
		return true
	case <-timer.C:
		return false
	}
}

// answerGrace is how long a plug-in may take to answer for what it has done when
// its time is up. The answer spares messages an attempt.
const answerGrace = 250 * time.Millisecond

// send calls the plug-in's Send. When the context ends it asks for the answer as
// far as it goes, and gives up soon after.
func (p *process) send(ctx context.Context, request *pluginv1.SendRequest) (*pluginv1.SendResponse, error) {
	request.TimeoutMs = remaining(ctx)
	calling, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		defer end()
		limited, cancel := context.WithTimeout(calling, answerGrace)
		defer cancel()
		_, _ = p.sink.Cancel(limited, &pluginv1.CancelRequest{SendId: request.GetSendId()})
		<-limited.Done()
	})
	defer stop()
	return p.sink.Send(calling, request)
}
