package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// orderWorkers is the number of concurrent calls. If all messages have one key, only one call is in flight at a time.
// So keeping the order divides the delivery rate by at most orderWorkers.
const orderWorkers = 4

// keys defines the keys of a backlog, which are the same in each round.
type keys struct {
	name string
	of   func(random *rand.Rand) func(n int) string
}

// orderKeys has the kinds of keys. Each kind is compared with the first.
var orderKeys = []keys{
	{"no key", func(*rand.Rand) func(int) string { return func(int) string { return "" } }},
	{"1,000 keys", func(random *rand.Rand) func(int) string {
		return func(int) string { return customer(random.Uint64N(1000)) }
	}},
	{"Zipf 1.1", func(random *rand.Rand) func(int) string {
		zipf := rand.NewZipf(random, 1.1, 1, 9999)
		return func(int) string { return customer(zipf.Uint64()) }
	}},
	{"half one key", func(random *rand.Rand) func(int) string {
		return func(n int) string { return customer(uint64(n%2) * (1 + random.Uint64N(1000))) }
	}},
	{"one key", func(*rand.Rand) func(int) string { return func(int) string { return customer(0) } }},
}

func customer(n uint64) string { return fmt.Sprintf("customer-%d", n) }

// slow is a sink whose calls take a fixed time, independent of the size of the batch.
type slow struct {
	discard.Sink
	call time.Duration
}

func (s slow) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if s.call > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(s.call):
		}
	}
	return s.Sink.Send(ctx, batch)
}

// orderCase pairs a server with the time that each call of the sink takes.
type orderCase struct {
	server table.Server
	call   time.Duration
}

func (c orderCase) String() string {
	if c.call == 0 {
		return c.server.Name + ", a sink that does nothing"
	}
	return fmt.Sprintf("%s, calls of %v", c.server.Name, c.call)
}

func orderScene(ctx context.Context, s settings, report func(figure.Figure)) error {
	var cases []orderCase
	for _, server := range s.up("postgres15", "postgres18", "mysql", "mariadb1011") {
		cases = append(cases, orderCase{server, 0}, orderCase{server, 10 * time.Millisecond})
	}
	for _, c := range only(cases, s) {
		if err := c.measure(ctx, s.rounds, report); err != nil {
			return err
		}
	}
	return nil
}

// orderTurn pairs a kind of keys with a claim mode.
type orderTurn struct {
	orderCase
	keys
	claim storage.Claim
}

func (t orderTurn) String() string { return fmt.Sprintf("%s, %s, %s", t.orderCase, t.claim, t.name) }

// measure measures claiming by lanes with each kind of keys, and claiming by rows with the first and
// the last kind. It compares each rate with the rate of claiming by lanes without keys, which keeps no
// order.
func (c orderCase) measure(ctx context.Context, rounds int, report func(figure.Figure)) error {
	var turns []orderTurn
	for _, k := range orderKeys {
		turns = append(turns, orderTurn{c, k, storage.ByLanes})
	}
	turns = append(turns, orderTurn{c, orderKeys[0], storage.ByRows}, orderTurn{c, orderKeys[len(orderKeys)-1], storage.ByRows})
	var contenders []figure.Contender
	for _, t := range turns {
		contenders = append(contenders, figure.Contender{Name: t.String(), Turn: t.rate})
	}
	values, err := figure.Turns(ctx, rounds, contenders...)
	if err != nil {
		return err
	}
	for i, t := range turns {
		f := figure.Figure{What: t.String(), Value: figure.Spread(clone(values[i]), "/s")}
		if i > 0 {
			f.Ratio, f.Reference = figure.Ratio(values[i], values[0]), "by lanes, no key "+figure.Spread(clone(values[0]), "/s")
		}
		report(f)
	}
	return nil
}

// rate fills a table, drains it, and returns the messages per second.
func (t orderTurn) rate(ctx context.Context) (float64, error) {
	d, err := t.server.Create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := d.MigrateFor(ctx, string(t.claim)); err != nil {
		return 0, err
	}
	key := t.of(rand.New(rand.NewPCG(1, 2)))
	if err := d.Fill(ctx, table.Messages{Count: backlog, Payload: 256, Key: key}); err != nil {
		return 0, err
	}
	o := relay.Options{Claim: t.claim, Sinks: map[string]relay.SinkOptions{"sink": {Sink: slow{call: t.call}, Workers: orderWorkers}}}
	took, err := relays.Drain(ctx, d, backlog, o)
	return backlog / took.Seconds(), err
}
