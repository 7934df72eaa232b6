package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// afterOpen lets messages go to a sink that was opened, or waits before the
// next try.
func (e *engine) afterOpen(o *outlet, err error) {
	if err != nil {
		o.circuit.state = circuitUp // as after a send that found it unavailable
		e.trip(o, sinks.Unopened(err))
		return
	}
	o.circuit.state = circuitUp
	if o.circuit.failures == 0 && !o.circuit.told {
		e.options.Observer.SinkUp(o.name)
	}
}

// judgeCircuit closes a circuit that trouble had opened, or opens it. A batch
// whose context had ended says nothing of its sink; a message that was postponed
// says that the sink works, though not this message's own destination.
func (e *engine) judgeCircuit(o *outlet, outcomes []sinks.Outcome, ended bool) {
	var trouble, failed *sinks.Outcome
	answered := false
	for i, outcome := range outcomes {
		switch {
		case outcome.Result == sinks.Unavailable:
			if trouble == nil || outcome.RetryAfter > trouble.RetryAfter {
				trouble = &outcomes[i]
			}
		case outcome.Result != sinks.Unsent || postponed(outcome):
			answered = true
		}
		if outcome.Destination == "" && (outcome.Result == sinks.Retry || outcome.Result == sinks.Reject) {
			failed = &outcomes[i]
		}
	}
	switch {
	case trouble != nil:
		e.trip(o, *trouble)
	case o.inTrouble() && failed != nil:
		e.trip(o, o.refusesAll(*failed))
	case o.inTrouble() && answered: // postponed: the next one tries it
	case answered:
		e.mend(o)
	case !ended:
		e.trip(o, sinks.Fail(sinks.Unavailable, sinks.ReasonCancelled, "the sink sent nothing of a whole batch"))
	}
}

// trip stops sending until the sink was opened again.
func (e *engine) trip(o *outlet, trouble sinks.Outcome) {
	now := time.Now()
	if o.circuit.state == circuitUp {
		o.circuit.failures++
	}
	o.circuit.state = circuitClosed
	wait := max(o.options.Reopen.draw(o.circuit.failures), trouble.RetryAfter)
	o.circuit.reopenAt = laterOf(o.circuit.reopenAt, now.Add(wait))
	detail := shorten(trouble.Detail, 1000)
	if o.circuit.told {
		e.tellStill(o, trouble.Reason, detail)
		return
	}
	o.circuit.told, o.circuit.detail = true, detail
	e.options.Observer.SinkDown(o.name, trouble.Reason, detail)
	e.options.Logger.Warn("relay: the sink is unavailable, its messages wait", "relay", e.options.Name,
		"sink", o.name, "reason", string(trouble.Reason), "detail", detail)
}

// tellStill tells of trouble that has become another, or has come further, as a
// search through a long log does.
func (e *engine) tellStill(o *outlet, reason sinks.Reason, detail string) {
	if detail == o.circuit.detail {
		return
	}
	if again, _ := e.quieter.again("still down " + o.name); !again {
		return
	}
	o.circuit.detail = detail
	e.options.Logger.Warn("relay: the sink is still unavailable", "relay", e.options.Name, "sink", o.name, "reason", string(reason), "detail", detail)
}

// mend notes that the sink answers. Where other batches found it unavailable
// since, it has to be opened all the same.
func (e *engine) mend(o *outlet) {
	if o.circuit.state != circuitUp {
		return
	}
	o.circuit.failures = 0
	if o.circuit.told {
		o.circuit.told = false
		e.options.Observer.SinkUp(o.name)
		e.options.Logger.Info("relay: the sink is available again", "relay", e.options.Name, "sink", o.name)
	}
}

// observeSent counts outcomes.
func (e *engine) observeSent(o *outlet, took time.Duration, outcomes []sinks.Outcome) {
	counts := map[Outcome]int{}
	for _, outcome := range outcomes {
		counts[Outcome{outcome.Result, outcome.Reason}]++
	}
	e.options.Observer.Sent(o.name, took, counts)
}
