package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rowrelay/rowrelay/bench/brokers"
	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/peers"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
)

func rabbitScene(ctx context.Context, s settings, report func(figure.Figure)) error {
	if os.Getenv(brokers.RabbitMQVariable) == "" {
		return nil
	}
	cases := []brokerCase{rabbitCase(1, "classic"), rabbitCase(2, "classic"), rabbitCase(4, "classic"), rabbitCase(1, "quorum")}
	for _, c := range only(cases, s) {
		if err := c.measure(ctx, s.rounds, report); err != nil {
			return err
		}
	}
	for _, c := range only([]rabbitPeers{{"1 classic queue, compared with others"}}, s) {
		if err := c.measure(ctx, s.rounds, report); err != nil {
			return err
		}
	}
	return nil
}

// rabbitCase returns a case whose bare publisher has the relay's default numbers of connections,
// channels and messages in flight.
func rabbitCase(queues int, kind string) brokerCase {
	return brokerCase{
		name: fmt.Sprintf("%d %s %s", queues, kind, map[bool]string{true: "queue", false: "queues"}[queues == 1]),
		target: func(context.Context) (brokers.Target, error) {
			return brokers.NewQueues(queues, kind, brokers.Publishers{Connections: 2, Channels: 2, Window: 256})
		},
		ways: []way{{"", "", relay.SinkOptions{}}},
		bare: true,
	}
}

// rabbitPeers compares a relay with peers whose handler publishes each message and waits for the
// broker's confirmation, as users of these peers would write the handler. The backlog is small,
// because some peers have only one message in flight.
type rabbitPeers struct{ name string }

const rabbitPeersBacklog, rabbitPeersGoal = 20_000, 1.7

func (c rabbitPeers) String() string { return c.name }

func (rabbitPeers) peers() []peers.Peer {
	return []peers.Peer{peers.River{}, peers.Watermill{}, peers.Oagudo{}}
}

// measure reports a figure for each peer. The best peer's figure has the lowest ratio, because
// rowrelay's rate is divided by the peer's.
func (c rabbitPeers) measure(ctx context.Context, rounds int, report func(figure.Figure)) error {
	contenders := []figure.Contender{{Name: "rowrelay, " + c.name, Turn: c.own}}
	for _, p := range c.peers() {
		contenders = append(contenders, figure.Contender{Name: p.Name() + ", " + c.name, Turn: c.other(p)})
	}
	values, err := figure.Turns(ctx, rounds, contenders...)
	if err != nil {
		return err
	}
	for i, p := range c.peers() {
		ratio := figure.Ratio(values[0], values[i+1])
		report(figure.Figure{
			What: c.name + ", by " + p.Name(), Value: figure.Spread(clone(values[0]), "/s"),
			Ratio: ratio, Reference: figure.Spread(values[i+1], "/s"),
			Goal: fmt.Sprintf("≥ %.1f", rabbitPeersGoal), Met: ratio >= rabbitPeersGoal,
		})
	}
	return nil
}

func oneQueue(context.Context) (*brokers.Queues, error) {
	return brokers.NewQueues(1, "classic", brokers.Publishers{Connections: 1})
}

func (c rabbitPeers) own(ctx context.Context) (rate float64, err error) {
	err = withTarget(ctx, rabbitPeersBacklog, oneQueue, func(queue *brokers.Queues) error {
		options, err := way{}.sinkOptions(queue)
		if err != nil {
			return err
		}
		rate, err = drainOnce(ctx, rabbitPeersBacklog, queue.Topic, relay.Options{Sinks: map[string]relay.SinkOptions{"sink": options}}, &cost{})
		return err
	})
	return rate, err
}

func (c rabbitPeers) other(p peers.Peer) func(context.Context) (float64, error) {
	return func(ctx context.Context) (rate float64, err error) {
		err = withTarget(ctx, rabbitPeersBacklog, oneQueue, func(queue *brokers.Queues) error {
			d, err := table.Servers["postgres15"].Create(ctx)
			if err != nil {
				return err
			}
			defer d.Close()
			if err := peers.Fill(ctx, p, d, rabbitPeersBacklog, brokerPayload); err != nil {
				return err
			}
			took, err := peers.Drain(ctx, p, d, rabbitPeersBacklog, queue.Publish)
			rate = rabbitPeersBacklog / took.Seconds()
			return err
		})
		return rate, err
	}
}
