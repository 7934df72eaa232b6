package operate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// What becomes of parked messages.
const (
	Requeue = "requeue"
	Skip    = "skip"
	Discard = "discard"
)

// How far messages that overtook parked ones are looked for.
const (
	EveryDelivered = 1 << 62   // as far as there are any
	FirstDelivered = 1_000_000 // what doesn't take long
)

// Bulk changes parked messages, however many, in steps at a rate: those that are parked when it is
// planned. Interrupted, it is asked again for the rest.
type Bulk struct {
	Action  string // Requeue, Skip or Discard
	Filter  storage.Filter
	Rate    int    // messages a second; 0 is no bound
	To      string // with Requeue, this sink instead of their own
	InOrder bool   // with Requeue, those that were overtaken stay parked
	Within  int64  // how far those that overtook are looked for; 0 for none
}

// step is how many messages are changed at once.
const step = 500

// Plan is what a Bulk is to do.
type Plan struct {
	IDs       []int64           // those that hold their keys first
	Topics    map[[2]string]int // by topic and sinks
	Overtaken int               // later messages of their keys were delivered
	Left      []storage.Parked  // such messages that stay parked
	Unfit     int               // the action isn't for them: they hold their keys and can't be redirected, or hold none to be skipped
}

// Plan finds the messages, and changes nothing.
func (b *Bulk) Plan(ctx context.Context, operator storage.Operator) (Plan, error) {
	p := Plan{Topics: map[[2]string]int{}}
	parked, err := operator.Parked(ctx, b.Filter, b.Within)
	if err != nil {
		return p, fmt.Errorf("find the parked messages: %w", err)
	}
	var others []int64
	for _, row := range parked {
		if row.Overtaken {
			p.Overtaken++
			if b.InOrder {
				p.Left = append(p.Left, row)
				continue
			}
		}
		if row.HoldsKey && b.To != "" || !row.HoldsKey && b.Action == Skip {
			p.Unfit++
			continue
		}
		p.Topics[[2]string{row.Topic, row.Sinks}]++
		if row.HoldsKey {
			p.IDs = append(p.IDs, row.ID)
		} else {
			others = append(others, row.ID)
		}
	}
	p.IDs = append(p.IDs, others...)
	return p, nil
}

// Run goes through the plan's messages, and says how many it has changed, also if it fails or the
// context ends. After each step it tells so, if progress isn't nil.
func (b *Bulk) Run(ctx context.Context, operator storage.Operator, ids []int64, progress func(done int)) (done int, err error) {
	size := step
	if b.Rate > 0 {
		size = min(size, b.Rate)
	}
	filter, pace := b.Filter, newPace(b.Rate)
	for batch := range slices.Chunk(ids, size) {
		if err := sleep(ctx, time.Until(pace.due())); err != nil {
			return pace.done, err
		}
		filter.IDs, filter.AfterID, filter.Limit = nil, slices.Min(batch)-1, len(batch)
		for _, id := range batch {
			filter.IDs = append(filter.IDs, strconv.FormatInt(id, 10))
		}
		n, err := b.change(ctx, operator, filter)
		pace.done += n
		if err != nil {
			return pace.done, err
		}
		if progress != nil {
			progress(pace.done)
		}
	}
	return pace.done, nil
}

func (b *Bulk) change(ctx context.Context, operator storage.Operator, filter storage.Filter) (int, error) {
	switch {
	case b.Action == Skip:
		return operator.Skip(ctx, filter)
	case b.Action == Discard:
		return operator.Discard(ctx, filter)
	case b.To != "":
		return operator.Redirect(ctx, filter, b.To)
	default:
		return operator.Requeue(ctx, filter)
	}
}

// pace keeps what goes through many messages to a rate.
type pace struct {
	rate  int // messages a second; 0 is no bound
	done  int // messages
	start time.Time
}

func newPace(rate int) *pace { return &pace{rate: rate, start: time.Now()} }

// due is when the next step is.
func (p *pace) due() time.Time {
	if p.rate == 0 {
		return p.start
	}
	return p.start.Add(time.Duration(float64(p.done) / float64(p.rate) * float64(time.Second)))
}
