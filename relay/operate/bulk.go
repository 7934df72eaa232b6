package operate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
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
	Waiting bool   // with To, also those that wait for the Filter's Sink alone, which no relay has
	InOrder bool   // with Requeue, those that were overtaken stay parked
	Within  int64  // how far those that overtook are looked for; 0 for none
}

// step is how many messages are changed at once.
const step = 500

// Plan is what a Bulk is to do: the rows that were found, and no others. Its rows are kept as ranges of their ids, so
// that a plan of very many takes little memory.
type Plan struct {
	Count     int              // rows
	Topics    []TopicCount     // the most first
	Overtaken int              // later messages of their keys were delivered
	Left      RowIDs           // such messages that stay parked
	Named     []storage.Parked // the first MostNamed of them
	More      bool             // there may be others, which it leaves out: MostWaiting
	Unfit     int              // the action isn't for them: they hold their keys and can't be redirected, or hold none to be skipped

	parts  map[string]*part // by the sinks that the rows name: a message may have several rows, for different sinks
	topics map[TopicCount]int
	passed int // rows that Run has gone through
}

// Rest is how many rows Run has not gone through yet.
func (p *Plan) Rest() int { return p.Count - p.passed }

// part is the rows of a plan that name the same sinks. Those that hold their keys are changed first, and those that aren't
// parked last.
type part struct{ holding, others, waiting RowIDs }

// TopicCount is how many of a plan's messages are of a topic and for the same sinks.
type TopicCount struct {
	Topic  string `json:"topic"`
	Sinks  string `json:"sinks,omitempty"`
	Parked int    `json:"parked"`
}

// Bounds of a plan.
const (
	MostWaiting = 100_000 // messages that wait for their next attempt
	MostNamed   = 100     // messages in Plan.Named

	waitingPage    = 10_000 // rows of one listing
	waitingOverlap = 1_000  // rows of a listing at least: more than one message has
)

// RowIDs are ids of rows in ascending order, kept as ranges.
type RowIDs struct {
	ranges []idRange
	count  int
}

// idRange has its ends among its ids.
type idRange struct{ from, to int64 }

// add puts an id to the others. It is not below any of them.
func (s *RowIDs) add(id int64) {
	last := len(s.ranges) - 1
	switch {
	case last >= 0 && s.ranges[last].to == id: // another message, which was given the same id
		return
	case last >= 0 && s.ranges[last].to == id-1:
		s.ranges[last].to = id
	default:
		s.ranges = append(s.ranges, idRange{id, id})
	}
	s.count++
}

// Len is how many ids there are.
func (s *RowIDs) Len() int { return s.count }

// All returns the ids, lowest first.
func (s *RowIDs) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, r := range s.ranges {
			for id := r.from; ; id++ {
				if !yield(id) {
					return
				}
				if id == r.to {
					break
				}
			}
		}
	}
}

// Plan finds the messages, and changes nothing.
func (b *Bulk) Plan(ctx context.Context, operator storage.Operator) (*Plan, error) {
	p := &Plan{Topics: []TopicCount{}, parts: map[string]*part{}, topics: map[TopicCount]int{}}
	find := b.parked
	if b.Filter.State == storage.StateRetry {
		find = b.waiting
	}
	if err := find(ctx, operator, p); err != nil {
		return nil, err
	}
	if b.Waiting && !p.More {
		if err := b.stranded(ctx, operator, p); err != nil {
			return nil, err
		}
	}
	for each, count := range p.topics {
		each.Parked = count
		p.Topics = append(p.Topics, each)
	}
	p.topics = nil
	slices.SortFunc(p.Topics, func(a, b TopicCount) int {
		return cmp.Or(cmp.Compare(b.Parked, a.Parked), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Sinks, b.Sinks))
	})
	return p, nil
}

// take puts a row into the plan.
func (p *Plan) take(row storage.Parked) {
	if row.Overtaken {
		p.Overtaken++
	}
	if of := p.count(row); row.HoldsKey {
		of.holding.add(row.ID)
	} else {
		of.others.add(row.ID)
	}
}

// count counts a row, and returns the part that it belongs to.
func (p *Plan) count(row storage.Parked) *part {
	p.Count++
	p.topics[TopicCount{Topic: row.Topic, Sinks: row.Sinks}]++
	of := p.parts[row.Sinks]
	if of == nil {
		of = &part{}
		p.parts[row.Sinks] = of
	}
	return of
}

// waiting finds messages that wait for their next attempt.
func (b *Bulk) waiting(ctx context.Context, operator storage.Operator, p *Plan) error {
	most := MostWaiting
	if b.Limit > 0 {
		most = min(most, b.Limit)
	}
	err := listAll(ctx, operator, b.Filter, most, func(info *storage.Info) bool {
		if p.Count == most {
			p.More = b.Limit == 0 || most < b.Limit
			return false
		}
		p.take(storage.Parked{ID: info.ID, Topic: info.Message.Topic, Sinks: info.Sinks})
		return true
	})
	return err
}

// stranded finds messages that wait for a sink that no relay has.
func (b *Bulk) stranded(ctx context.Context, operator storage.Operator, p *Plan) error {
	most := MostWaiting
	if b.Limit > 0 {
		most = min(most, b.Limit-p.Count)
	}
	rows := map[int64]storage.Parked{} // a row may be met in two states
	for _, state := range []storage.State{storage.StatePending, storage.StateScheduled, storage.StateRetry} {
		filter := b.Filter
		filter.State = state
		err := listAll(ctx, operator, filter, most, func(info *storage.Info) bool {
			switch _, met := rows[info.ID]; {
			case info.Sinks != filter.Sink:
				p.Unfit++
			case !met && len(rows) == most:
				p.More = b.Limit == 0
				return false
			default:
				rows[info.ID] = storage.Parked{ID: info.ID, Topic: info.Message.Topic, Sinks: info.Sinks}
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		p.count(rows[id]).waiting.add(id)
	}
	return nil
}

// listAll gives each row that the filter selects, by id, until take has had enough, which takes that many rows.
func listAll(ctx context.Context, operator storage.Operator, filter storage.Filter, most int, take func(*storage.Info) bool) error {
	filter.Limit = min(waitingPage, most+waitingOverlap)
	seen := []string{} // the sinks of the rows that have the last id: a page may end between them
	for last := int64(0); ; {
		page, err := List(ctx, operator, filter)
		if err != nil {
			return fmt.Errorf("find the messages that wait: %w", err)
		}
		for _, info := range page {
			if info.ID != last {
				last, seen = info.ID, seen[:0]
			} else if slices.Contains(seen, info.Sinks) {
				continue
			}
			if seen = append(seen, info.Sinks); !take(&info) {
				return nil
			}
		}
		if len(page) < filter.Limit {
			return nil
		}
		filter.AfterID = last - 1
	}
}

// parked finds parked messages, and counts in the plan what the action isn't for. With a Limit those that hold their keys
// come first.
func (b *Bulk) parked(ctx context.Context, operator storage.Operator, p *Plan) error {
	var others []storage.Parked // with a Limit
	err := operator.Parked(ctx, b.Filter, b.Within, func(row storage.Parked) {
		switch {
		case row.Overtaken && b.InOrder:
			p.Overtaken++
			p.Left.add(row.ID)
			if len(p.Named) < MostNamed {
				p.Named = append(p.Named, row)
			}
		case row.HoldsKey && b.To != "" || !row.HoldsKey && b.Action == Skip:
			p.Unfit++
		case b.Limit == 0, row.HoldsKey && p.Count < b.Limit:
			p.take(row)
		case !row.HoldsKey && len(others) < b.Limit:
			others = append(others, row)
		}
	})
	if err != nil {
		return fmt.Errorf("find the parked messages: %w", err)
	}
	for _, row := range others[:min(len(others), max(0, b.Limit-p.Count))] {
		p.take(row)
	}
	return nil
}

// Run changes the plan's rows, and says how many it has changed, also if it fails or the context ends. After each
// step it tells so, if progress isn't nil. Called again with the plan, it continues with the rest.
func (b *Bulk) Run(ctx context.Context, operator storage.Operator, plan *Plan, progress func(done int)) (done int, err error) {
	size := step
	if b.Rate > 0 {
		size = min(size, b.Rate)
	}
	pace, skip := newPace(b.Rate), plan.passed
	for _, sinks := range slices.Sorted(maps.Keys(plan.parts)) {
		filter := b.Filter
		if filter.Sink == "" && sinks != "" { // not the message's other rows
			filter.Sink = storage.SplitSinks(sinks)[0]
		}
		of := plan.parts[sinks]
		skipped := min(skip, of.holding.Len()+of.others.Len()+of.waiting.Len())
		skip -= skipped
		for batch := range of.batches(size, skipped) {
			if err := sleep(ctx, time.Until(pace.due())); err != nil {
				return pace.done, err
			}
			filter.IDs, filter.AfterID, filter.Limit = nil, slices.Min(batch)-1, 0
			for _, id := range batch {
				filter.IDs = append(filter.IDs, strconv.FormatInt(id, 10))
			}
			n, err := b.change(ctx, operator, filter)
			pace.done += n
			if err != nil {
				return pace.done, err
			}
			plan.passed += len(batch)
			if progress != nil {
				progress(pace.done)
			}
		}
	}
	return pace.done, nil
}

// batches are the ids in steps of that size, without the first ones, of which so many are skipped.
func (p *part) batches(size, skip int) iter.Seq[[]int64] {
	return func(yield func([]int64) bool) {
		var batch []int64
		for _, ids := range []RowIDs{p.holding, p.others, p.waiting} {
			for id := range ids.All() {
				if skip > 0 {
					skip--
					continue
				}
				if batch = append(batch, id); len(batch) == size {
					if !yield(batch) {
						return
					}
					batch = batch[:0]
				}
			}
		}
		if len(batch) > 0 {
			yield(batch)
		}
	}
}

func (b *Bulk) change(ctx context.Context, operator storage.Operator, filter storage.Filter) (int, error) {
	switch {
	case b.Action == Skip:
		return operator.Skip(ctx, filter)
	case b.Action == Discard:
		return operator.Discard(ctx, filter)
	case b.Waiting: // a batch may have both
		parked, err := operator.Redirect(ctx, filter, b.To)
		if err != nil {
			return parked, err
		}
		filter.State = storage.StatePending
		waiting, err := operator.Redirect(ctx, filter, b.To)
		return parked + waiting, err
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
