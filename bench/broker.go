package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/brokers"
	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

const brokerPayload = 256

// brokerCase compares three ways to deliver a backlog: relays with different configurations write
// it to a broker, a bare producer writes it to the broker from memory, and a relay delivers it to a
// sink that does nothing. The rate of the relay with this sink is the table's limit.
type brokerCase struct {
	name   string
	target func(ctx context.Context) (brokers.Target, error)
	ways   []way // the configurations of relays; the goal applies to the first one
	bare   bool  // the goal is a share of the bare producer's rate, even if the table's limit is lower
}

func (c brokerCase) String() string { return c.name }

// way is a configuration of a relay.
type way struct {
	name    string // empty: the default configuration
	query   string // added to the query of the sink's URL
	options relay.SinkOptions
}

// brokerGoal is the share of the bare producer's rate, or of the table's limit, that the relay
// should reach.
const brokerGoal = 0.9

func (c brokerCase) measure(ctx context.Context, rounds int, report func(figure.Figure)) error {
	costs := make([]cost, len(c.ways)+2)
	bare, limit := &costs[len(c.ways)], &costs[len(c.ways)+1]
	contenders := make([]figure.Contender, 0, len(costs))
	for i, w := range c.ways {
		contenders = append(contenders, figure.Contender{Name: "rowrelay, " + c.name + w.name, Turn: c.byRelay(w, &costs[i])})
	}
	contenders = append(contenders,
		figure.Contender{Name: "bare, " + c.name, Turn: c.byBare(bare)},
		figure.Contender{Name: "to nowhere", Turn: c.toNowhere(limit)})
	values, err := figure.Turns(ctx, rounds, contenders...)
	if err != nil {
		return err
	}
	bare.rates, limit.rates = values[len(c.ways)], values[len(c.ways)+1]
	for i, w := range c.ways {
		costs[i].rates = values[i]
		c.report(w, costs[i], *bare, *limit, report)
	}
	return nil
}

// cost has the rates and the CPU times of one of the compared systems, with one value for each
// turn.
type cost struct {
	rates       []float64
	own, others []float64 // microseconds of CPU per message
}

func (c *cost) String() string {
	own, others := figure.Median(clone(c.own)), figure.Median(clone(c.others))
	return fmt.Sprintf("%.0f + %.0f µs", own, others)
}

func (c *cost) cpu() float64 { return figure.Median(clone(c.own)) + figure.Median(clone(c.others)) }

func clone(values []float64) []float64 { return append([]float64(nil), values...) }

// report reports three figures for a configuration of a relay. The first is the relay's share of the bare producer's
// rate, or of the table's limit if that is lower. The second is the relay's share of the rate that is possible if
// broker and table share the machine. The third is the relay's CPU.
func (c brokerCase) report(w way, own, bare, limit cost, report func(figure.Figure)) {
	lower, name := bare.rates, "bare "
	if !c.bare && figure.Median(clone(limit.rates)) < figure.Median(clone(bare.rates)) {
		lower, name = limit.rates, "table "
	}
	f := figure.Figure{
		What: c.name + w.name, Value: figure.Spread(clone(own.rates), "/s"),
		Ratio: figure.Ratio(own.rates, lower), Reference: name + figure.Spread(clone(lower), "/s"), Goal: fmt.Sprintf("≥ %.2f", brokerGoal),
	}
	f.Met = f.Ratio >= brokerGoal
	report(f)
	both := make([]float64, len(own.rates))
	for i := range both {
		both[i] = 1 / (1/bare.rates[i] + 1/limit.rates[i])
	}
	report(figure.Figure{
		What: c.name + w.name + ", of one machine", Value: figure.Spread(clone(own.rates), "/s"),
		Ratio: figure.Ratio(own.rates, both), Reference: fmt.Sprintf("%s, 1/(1/bare + 1/table)", figure.Spread(both, "/s")),
	})
	report(figure.Figure{
		What: c.name + w.name + ", CPU", Value: own.String(),
		Ratio: own.cpu() / (bare.cpu() + limit.cpu()), Reference: fmt.Sprintf("bare %s and table %s", bare.String(), limit.String()),
	})
}

// timed measures the CPU and the rate of a part of a turn.
func (c *cost) timed(count int, part func() (time.Duration, error)) (float64, error) {
	before := figure.Spent()
	took, err := part()
	own, others := figure.Spent().Since(before).Each(count)
	c.own, c.others = append(c.own, own), append(c.others, others)
	return float64(count) / took.Seconds(), err
}

// byRelay returns a function that measures one turn: a relay drains a table to the broker.
func (c brokerCase) byRelay(w way, cost *cost) func(context.Context) (float64, error) {
	return func(ctx context.Context) (rate float64, err error) {
		err = withTarget(ctx, backlog, c.target, func(target brokers.Target) error {
			options, err := w.sinkOptions(target)
			if err != nil {
				return err
			}
			rate, err = drainOnce(ctx, backlog, target.Topic, relay.Options{Sinks: map[string]relay.SinkOptions{"sink": options}}, cost)
			return err
		})
		return rate, err
	}
}

func (w way) sinkOptions(target brokers.Target) (relay.SinkOptions, error) {
	options := w.options
	kinds, err := sinks.NewRegistry(target.Kind())
	if err != nil {
		return options, err
	}
	options.Sink, err = kinds.FromURL(strings.TrimSuffix(target.URL()+w.query, "?"))
	return options, err
}

// toNowhere returns a function that measures one turn: a relay with the first configuration drains
// a table to a sink that does nothing.
func (c brokerCase) toNowhere(cost *cost) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		options := c.ways[0].options
		options.Sink = discard.New()
		return drainOnce(ctx, backlog, func(int) string { return "orders" }, relay.Options{Sinks: map[string]relay.SinkOptions{"sink": options}}, cost)
	}
}

func drainOnce(ctx context.Context, count int, topic func(int) string, options relay.Options, cost *cost) (float64, error) {
	d, err := table.Servers["postgres15"].Create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return 0, err
	}
	if err := d.Fill(ctx, table.Messages{Count: count, Payload: brokerPayload, TopicOf: topic}); err != nil {
		return 0, err
	}
	return cost.timed(count, func() (time.Duration, error) { return relays.Drain(ctx, d, count, options) })
}

// byBare returns a function that measures one turn: the bare producer writes the same messages
// from memory.
func (c brokerCase) byBare(cost *cost) func(context.Context) (float64, error) {
	return func(ctx context.Context) (rate float64, err error) {
		err = withTarget(ctx, backlog, c.target, func(target brokers.Target) error {
			messages := make([]sinks.Message, backlog)
			payload := []byte(strings.Repeat("x", brokerPayload))
			for n := range messages {
				messages[n] = sinks.Message{CreatedAt: time.Now(), Message: outbox.Message{
					ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", n), Topic: target.Topic(n), Key: fmt.Sprintf("customer-%d", n%5000), Payload: payload,
				}}
			}
			rate, err = cost.timed(backlog, func() (time.Duration, error) {
				began := time.Now()
				err := target.Produce(ctx, messages)
				return time.Since(began), err
			})
			return err
		})
		return rate, err
	}
}

// withTarget calls the function `use` with a new target, and then checks that the broker has all messages.
func withTarget[T brokers.Target](ctx context.Context, wanted int, make func(context.Context) (T, error), use func(T) error) error {
	target, err := make(ctx)
	if err != nil {
		return err
	}
	err = use(target)
	if err == nil {
		var count int
		if count, err = target.Count(ctx); err == nil && count != wanted {
			err = fmt.Errorf("the broker has %d of %d messages", count, wanted)
		}
	}
	return errors.Join(err, target.Close())
}
