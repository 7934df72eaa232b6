package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rowrelay/rowrelay/bench/brokers"
	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/relay"
)

func kafkaScene(ctx context.Context, s settings, report func(figure.Figure)) error {
	if os.Getenv(brokers.KafkaVariable) == "" {
		return nil
	}
	var cases []brokerCase
	for _, shape := range []struct{ partitions, batch int }{{6, 500}, {6, 2000}, {1, 500}} {
		cases = append(cases, kafkaCase(shape.partitions, shape.batch))
	}
	for _, c := range only(cases, s) {
		if err := c.measure(ctx, s.rounds, report); err != nil {
			return err
		}
	}
	return nil
}

func kafkaCase(partitions, batch int) brokerCase {
	options := relay.SinkOptions{Batch: batch}
	return brokerCase{
		name:   fmt.Sprintf("%d partitions, batches of %d", partitions, batch),
		target: func(ctx context.Context) (brokers.Target, error) { return brokers.NewTopic(ctx, partitions, batch) },
		ways:   []way{{"", "", options}, {", idempotent", "idempotent=true", options}},
	}
}
