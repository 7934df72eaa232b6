package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// What becomes of parked messages, or with storage.StateRetry in the filter of those that wait for
// their next attempt.
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
	Limit   int    // at most so many; 0 is no bound
	Rate    int    // messages a second; 0 is no bound
	To      string // with Requeue, this sink instead of their own
	InOrder bool   // with Requeue, those that were overtaken stay parked
	Within  int64  // how far those that overtook are looked for; 0 for none
}

// step is how many messages are changed at once.
const step = 500

// Plan is what a Bulk is to do.
type Plan struct {
	IDs       []int64          // those that hold their keys first
	Topics    []TopicCount     // the most first
	Overtaken int              // later messages of their keys were delivered
	Left      []storage.Parked // such messages that stay parked
	More      bool             // there may be others, which it leaves out: MostWaiting
	Unfit     int              // the action isn't for them: they hold their keys and can't be redirected, or hold none to be skipped
}

// TopicCount is how many of a plan's messages are of a topic and for the same sinks.
type TopicCount struct {
	Topic  string `json:"topic"`
	Sinks  string `json:"sinks,omitempty"`
	Parked int    `json:"parked"`
}

// MostWaiting is how many messages a plan has at most that wait for their next attempt.
const MostWaiting = 100_000

// Plan finds the messages, and changes nothing.
func (b *Bulk) Plan(ctx context.Context, operator storage.Operator) (Plan, error) {
	p := Plan{Topics: []TopicCount{}}
	find := b.parked
	if b.Filter.State == storage.StateRetry {
		find = b.waiting
	}
	found, err := find(ctx, operator, &p)
	if err != nil {
		return p, err
	}
	if b.Limit > 0 && len(found) > b.Limit {
		found = found[:b.Limit]
	}
	counts := map[TopicCount]int{}
	for _, row := range found {
		if row.Overtaken {
			p.Overtaken++
		}
		p.IDs = append(p.IDs, row.ID)
		counts[TopicCount{Topic: row.Topic, Sinks: row.Sinks}]++
	}
	for each, count := range counts {
		each.Parked = count
		p.Topics = append(p.Topics, each)
	}
	slices.SortFunc(p.Topics, func(a, b TopicCount) int {
		return cmp.Or(cmp.Compare(b.Parked, a.Parked), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Sinks, b.Sinks))
	})
	return p, nil
}

// waiting finds messages that wait for their next attempt.
func (b *Bulk) waiting(ctx context.Context, operator storage.Operator, p *Plan) (found []storage.Parked, err error) {
	filter := b.Filter
	filter.Limit = MostWaiting + 1
	if b.Limit > 0 {
		filter.Limit = min(filter.Limit, b.Limit)
	}
	infos, err := List(ctx, operator, filter)
	if err != nil {
		return nil, fmt.Errorf("find the messages that wait: %w", err)
	}
	if p.More = len(infos) > MostWaiting; p.More {
		infos = infos[:MostWaiting]
	}
	for _, info := range infos {
		found = append(found, storage.Parked{ID: info.ID, Topic: info.Message.Topic, Key: info.Message.Key, Sinks: info.Sinks})
	}
	return found, nil
}

// parked finds parked messages, those first that hold their keys, and notes in the plan what the action isn't for.
func (b *Bulk) parked(ctx context.Context, operator storage.Operator, p *Plan) (found []storage.Parked, err error) {
	parked, err := operator.Parked(ctx, b.Filter, b.Within)
	if err != nil {
		return nil, fmt.Errorf("find the parked messages: %w", err)
	}
	var others []storage.Parked
	for _, row := range parked {
		if row.Overtaken && b.InOrder {
			p.Overtaken++
			p.Left = append(p.Left, row)
			continue
		}
		if row.HoldsKey && b.To != "" || !row.HoldsKey && b.Action == Skip {
			p.Unfit++
			continue
		}
		if row.HoldsKey {
			found = append(found, row)
		} else {
			others = append(others, row)
		}
	}
	return append(found, others...), nil
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
