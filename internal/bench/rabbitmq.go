package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rowrelay/rowrelay/internal/bench/brokers"
	"github.com/rowrelay/rowrelay/internal/bench/figure"
	"github.com/rowrelay/rowrelay/relay"
)

func rabbitScene(ctx context.Context, s settings, report func(figure.Figure)) error {
	if os.Getenv(brokers.RabbitMQVariable) == "" {
		return nil
	}
	var cases []brokerCase
	for _, queues := range []int{1, 2, 4} {
		cases = append(cases, rabbitCase(queues, "classic"))
	}
	for _, c := range only(append(cases, rabbitCase(1, "quorum")), s) {
		if err := c.measure(ctx, s.rounds, report); err != nil {
			return err
		}
	}
	return nil
}

// The bare publisher has as many connections, channels and messages on their way
// as the relay has by default.
func rabbitCase(queues int, kind string) brokerCase {
	return brokerCase{
		name: fmt.Sprintf("%d %s queues", queues, kind),
		target: func(context.Context) (brokers.Target, error) {
			return brokers.NewQueues(queues, kind, brokers.Publishers{Connections: 2, Channels: 2, Window: 256})
		},
		ways: []way{{"", "", relay.SinkOptions{}}},
		bare: true,
	}
}
