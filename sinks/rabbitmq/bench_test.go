package rabbitmq_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

const (
	benchBatch   = 500
	benchRounds  = 15
	benchRound   = 12 // batches in a round, over all workers
	benchWorkers = 2
)

// BenchmarkAgainstBarePublisher compares the sink with a bare publisher of the same
// library. Both send the same messages with the same window, connections and
// channels. They alternate, and the reported figures are medians. Each connection has
// its own queue, which is emptied after each round.
func BenchmarkAgainstBarePublisher(b *testing.B) {
	for _, kind := range []string{"classic", "quorum"} {
		for _, connections := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/%d", kind, connections), func(b *testing.B) { compare(b, kind, connections) })
		}
	}
}

func compare(b *testing.B, kind string, connections int) {
	target := theBroker(b)
	c := target.client(b)
	queues := make([]string, connections)
	for i := range queues {
		queues[i] = c.queue(kind, nil)
	}
	options := target.options()
	options.Connections = connections
	sink := newSink(b, options)
	if err := sink.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer sink.Close(context.Background())
	bare := newBare(b, target, connections)
	batch := benchMessages(queues)
	ours, theirs := inTurns(b, c, queues, func() { bySink(b, sink, batch) }, func() { bare.publish(b, batch) })
	b.ReportMetric(median(ours.rates), "sink-msg/s")
	b.ReportMetric(median(theirs.rates), "bare-msg/s")
	b.ReportMetric(median(ours.rates)/median(theirs.rates), "ratio")
	b.ReportMetric(median(ours.cpu), "sink-µs-cpu/msg")
	b.ReportMetric(median(theirs.cpu), "bare-µs-cpu/msg")
	b.ReportMetric(0, "ns/op")
}

// side has the figures of the sink or of the bare publisher, by round: messages per second, and CPU
// microseconds of this process per message.
type side struct{ rates, cpu []float64 }

func (s *side) measure(f func()) {
	const messages = benchBatch * benchRound
	start, before := time.Now(), cpuTime()
	f()
	s.rates = append(s.rates, messages/time.Since(start).Seconds())
	s.cpu = append(s.cpu, (cpuTime()-before).Seconds()*1e6/messages)
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func inTurns(b *testing.B, c client, queues []string, first, second func()) (one, other side) {
	sides := []func(){func() { one.measure(first) }, func() { other.measure(second) }}
	for round := range b.N * benchRounds {
		for i := range sides {
			sides[(round+i)%2]()
			for _, queue := range queues {
				if _, err := c.QueuePurge(queue, false); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	return one, other
}

// benchMessages returns messages that alternate between the queues. The topic is the
// name of the queue.
func benchMessages(queues []string) []sinks.Message {
	batch := make([]sinks.Message, benchBatch)
	for i := range batch {
		batch[i] = sinks.Message{Attempt: 1, CreatedAt: time.Now(), Message: outbox.Message{
			ID: outbox.NewID(), Topic: queues[i%len(queues)], Key: fmt.Sprint("customer-", i),
			Payload: make([]byte, 256), Headers: map[string]string{"trace": "0123456789abcdef"},
		}}
	}
	return batch
}

func bySink(b *testing.B, sink *rabbitmq.Sink, batch []sinks.Message) {
	var workers sync.WaitGroup
	for range benchWorkers {
		workers.Go(func() {
			for range benchRound / benchWorkers {
				for _, o := range sink.Send(b.Context(), batch) {
					if o.Result != sinks.Delivered {
						b.Errorf("%+v", o)
					}
				}
			}
		})
	}
	workers.Wait()
}

// bare is a publisher without returns, outcomes and keys.
type bare struct{ channels []*amqp.Channel }

func newBare(b *testing.B, target *broker, connections int) bare {
	var p bare
	for range connections {
		for _, channel := range target.channels(b, benchWorkers) {
			if err := channel.Confirm(false); err != nil {
				b.Fatal(err)
			}
			p.channels = append(p.channels, channel)
		}
	}
	return p
}

func (p bare) publish(b *testing.B, batch []sinks.Message) {
	var workers sync.WaitGroup
	for at, channel := range p.channels {
		workers.Go(func() {
			window := make([]*amqp.DeferredConfirmation, 0, rabbitmq.DefaultWindow)
			wait := func() {
				if !window[0].Wait() {
					b.Error("nack")
				}
				window = append(window[:0], window[1:]...)
			}
			for range benchRound {
				for i := at; i < len(batch); i += len(p.channels) {
					if len(window) == rabbitmq.DefaultWindow {
						wait()
					}
					window = append(window, p.one(b, channel, batch[i]))
				}
			}
			for len(window) > 0 {
				wait()
			}
		})
	}
	workers.Wait()
}

func (p bare) one(b *testing.B, channel *amqp.Channel, m sinks.Message) *amqp.DeferredConfirmation {
	confirmation, err := channel.PublishWithDeferredConfirm("", m.Topic, true, false, amqp.Publishing{
		MessageId: m.ID, DeliveryMode: amqp.Persistent, ContentType: "application/octet-stream", Timestamp: m.CreatedAt, Body: m.Payload,
		Headers: amqp.Table{"trace": m.Headers["trace"], "rowrelay-topic": m.Topic, "rowrelay-key": m.Key, "rowrelay-attempt": int32(1)},
	})
	if err != nil {
		b.Error(err)
	}
	return confirmation
}
