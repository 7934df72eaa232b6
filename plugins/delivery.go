package plugins

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
)

// delivery is one Send under way.
type delivery struct {
	sink     *Sink
	process  *process
	promised promised
	batch    []sinks.Message
	outcomes []sinks.Outcome

	at      int             // the first message that was not looked at yet
	stopped map[string]bool // keys that must not go on; mostly none
	down    bool            // the destination was unavailable
}

// held is the outcome of a message that can't be handed over now, whatever it
// is, or nil.
func (d *delivery) held(ctx context.Context) *sinks.Outcome {
	key := d.batch[d.at].Key
	switch {
	case d.process == nil || d.promised.requestBytes == 0:
		o := sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, errNotOpen.Error())
		return &o
	case d.down || d.stopped[key]:
		return &neighbour
	case !d.process.alive():
		o := sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, d.process.fate().Error())
		return &o
	case ctx.Err() != nil:
		return &cancelled
	}
	return nil
}

// note notes the outcomes of a part, in its order. What comes after a message of
// its key that is to come again has to come again, too, whatever became of it;
// and a sink that delivers all or nothing calls the failure of one message that
// of all, and all would pay for it.
func (d *delivery) note(p part, outcome func(i int) sinks.Outcome) {
	failed := false
	for i, index := range p.messages {
		o := outcome(i)
		held := d.stopped[d.batch[index].Key] || failed && d.promised.order == sinks.OrderAtomic
		if held && o.Result != sinks.Delivered {
			o = neighbour
		}
		failed = failed || o.Result != sinks.Delivered
		d.set(index, o)
	}
}

// set notes an outcome, and what it means for the messages after it.
func (d *delivery) set(index int, o sinks.Outcome) {
	d.outcomes[index] = o
	switch key := d.batch[index].Key; {
	case o.Result == sinks.Delivered:
		if !d.process.delivered.Load() {
			d.process.delivered.Store(true)
		}
		return
	case key != "":
		if d.stopped == nil {
			d.stopped = map[string]bool{}
		}
		d.stopped[key] = true
	}
	if o.Result == sinks.Unavailable {
		d.down = true
	}
}
