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

// Actions of a Bulk. They change parked messages or, if the filter has storage.StateRetry, messages that wait for their
// next attempt.
const (
	Requeue = "requeue"
	Skip    = "skip"
	Discard = "discard"
)

// Values of Bulk.Within: how many ids to search for delivered messages that overtook parked ones.
const (
	EveryDelivered = 1 << 62   // all
	FirstDelivered = 1_000_000 // a million ids, which keeps the search short
)

// Bulk changes any number of parked messages, in steps and at a limited rate. It changes only messages that Plan has found.
// After an interruption, call Run again with the same plan to change the remaining messages.
type Bulk struct {
	Action  string // Requeue, Skip or Discard
	Filter  storage.Filter
	Limit   int    // change at most this number of messages; 0 means no limit
	Rate    int    // messages per second; 0 means no limit
	To      string // with Requeue: send to this sink instead of the messages' own sinks
	Waiting bool   // with To: also send messages that aren't parked and wait only for the Filter's Sink, which no relay has
	InOrder bool   // with Requeue: leave overtaken messages parked
	Within  int64  // how far above the lowest parked id to search for delivered messages that overtook parked ones; 0 means no search
}

// step is the maximum number of messages that one statement changes.
const step = 500

// Plan has the rows that a Bulk has found and is going to change. It stores ranges of ids, so that a plan of millions of rows
// takes little memory.
type Plan struct {
	Count     int              // rows to change
	Topics    []TopicCount     // the rows by topic, the largest count first
	Overtaken int              // messages that were overtaken: a later message of the same key was delivered
	Left      RowIDs           // overtaken messages that stay parked
	Named     []storage.Parked // the first MostNamed of Left
	More      bool             // the plan may lack rows, because of the limit MostWaiting
	Unfit     int              // messages that the action can't change. With To: parked messages that hold their keys, and other messages that also wait for another sink. With Skip: messages that don't hold their keys

	parts  map[string]*part // the rows by their sinks: a message may have several rows, for different sinks
	topics map[TopicCount]int
	passed int // rows that Run has processed
}

// Rest returns the number of rows that Run has not processed yet.
func (p *Plan) Rest() int { return p.Count - p.passed }

// part has the rows of a plan that have the same sinks. Run changes the rows that hold their keys first, and the rows that aren't parked
// last.
type part struct{ holding, others, waiting RowIDs }

// TopicCount counts the messages of a plan that have the same topic and sinks.
type TopicCount struct {
	Topic  string `json:"topic"`
	Sinks  string `json:"sinks,omitempty"`
	Parked int    `json:"parked"`
}

// Bounds of a plan.
const (
	MostWaiting = 100_000 // messages that aren't parked
	MostNamed   = 100     // messages in Plan.Named

	waitingPage    = 10_000 // maximum number of rows in a page
	waitingOverlap = 1_000  // added to the limit of a page; more than the number of rows that one message can have
)

// RowIDs is a set of row ids in ascending order, stored as ranges.
type RowIDs struct {
	ranges []idRange
	count  int
}

// idRange is a range of ids that includes both ends.
type idRange struct{ from, to int64 }

// add adds an id, which must not be below any id of the set.
func (s *RowIDs) add(id int64) {
	last := len(s.ranges) - 1
	switch {
	case last >= 0 && s.ranges[last].to == id: // another row with the same id
		return
	case last >= 0 && s.ranges[last].to == id-1:
		s.ranges[last].to = id
	default:
		s.ranges = append(s.ranges, idRange{id, id})
	}
	s.count++
}

// Len returns the number of ids.
func (s *RowIDs) Len() int { return s.count }

// All returns an iterator over the ids, lowest first.
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

// Plan finds the messages to change. It changes nothing.
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

// take adds a row to the plan.
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

// count counts a row, and returns its part.
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

// stranded finds messages that aren't parked and wait for a sink that no relay has.
func (b *Bulk) stranded(ctx context.Context, operator storage.Operator, p *Plan) error {
	most := MostWaiting
	if b.Limit > 0 {
		most = min(most, b.Limit-p.Count)
	}
	rows := map[int64]storage.Parked{} // a row whose state changes during the search may be found twice
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

// listAll calls a function with each row that the filter selects, in the order of ids, until the function returns false. The
// argument `most` is the maximum number of rows that the function accepts.
func listAll(ctx context.Context, operator storage.Operator, filter storage.Filter, most int, take func(*storage.Info) bool) error {
	filter.Limit = min(waitingPage, most+waitingOverlap)
	seen := []string{} // the sinks of the rows with the last id, because a page may end between two such rows
	for last := int64(0); ; {
		page, err := List(ctx, operator, filter)
		if err != nil {
			return fmt.Errorf("find the waiting messages: %w", err)
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

// parked finds parked messages, and counts those that the action can't change. If Limit is set, it prefers messages that hold
// their keys, because later messages of these keys are not sent.
func (b *Bulk) parked(ctx context.Context, operator storage.Operator, p *Plan) error {
	var others []storage.Parked // with a Limit: messages that don't hold their keys
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

// Run changes the plan's rows. It returns the number of changed rows, even if it fails or the context ends. It calls
// the function progress after each step, unless progress is nil. If Run is called again with the same plan, it
// continues with the remaining rows.
func (b *Bulk) Run(ctx context.Context, operator storage.Operator, plan *Plan, progress func(done int)) (done int, err error) {
	size := step
	if b.Rate > 0 {
		size = min(size, b.Rate)
	}
	pace, skip := newPace(b.Rate), plan.passed
	for _, sinks := range slices.Sorted(maps.Keys(plan.parts)) {
		filter := b.Filter
		if filter.Sink == "" && sinks != "" { // so that the message's rows for other sinks don't change
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

// batches returns the part's ids in batches of at most `size` ids, without the first `skip` ids.
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
	case b.Waiting: // a batch may have parked and waiting rows
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

// pace limits work on many messages to a rate.
type pace struct {
	rate  int // messages per second; 0 means no limit
	done  int // messages
	start time.Time
}

func newPace(rate int) *pace { return &pace{rate: rate, start: time.Now()} }

// due returns the time of the next step.
func (p *pace) due() time.Time {
	if p.rate == 0 {
		return p.start
	}
	return p.start.Add(time.Duration(float64(p.done) / float64(p.rate) * float64(time.Second)))
}
