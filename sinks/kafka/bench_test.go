package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// BenchmarkShare compares the sink's Send with a bare loop over Client.Produce, with
// the same acks, batch size and batches in flight (one per partition). The two
// alternate. The reported figures are medians. The target for share, the quotient of
// each pair of turns, is 0.9 or more.
func BenchmarkShare(b *testing.B) {
	address := broker(b)
	for _, size := range []int{256, 2048} {
		for _, partitions := range []int{1, 3} {
			b.Run(fmt.Sprintf("%dB/%dpartitions", size, partitions), func(b *testing.B) { share(b, address, size, partitions) })
		}
	}
}

const recordsABatch, batchesATurn, turns = 500, 60, 15

func share(b *testing.B, address string, size, partitions int) {
	topic := newTopic(b, []string{address}, int32(partitions), "max.message.bytes=10000000", "retention.bytes=50000000", "segment.bytes=10000000")
	loads := make([][]sinks.Message, partitions)
	for p := range loads {
		loads[p] = load(topic, p, partitions, size)
	}
	sink := newSink(b, kafka.Options{Brokers: []string{address}, MaxMessageBytes: 10000000})
	transport := &kafkago.Transport{MetadataTopics: []string{topic}}
	defer transport.CloseIdleConnections()
	bare := &kafkago.Client{Addr: kafkago.TCP(address), Transport: transport, Timeout: 10 * time.Second}
	var ours, theirs, shares []float64
	for range b.N * turns {
		one := turn(loads, func(load []sinks.Message) { bySink(b, sink, load) })
		other := turn(loads, func(load []sinks.Message) { byClient(b, bare, topic, partitions, load) })
		ours, theirs, shares = append(ours, one), append(theirs, other), append(shares, one/other)
	}
	b.ReportMetric(median(ours), "sink/s")
	b.ReportMetric(median(theirs), "bare/s")
	b.ReportMetric(median(shares), "share")
}

// load returns a batch for one partition, with fifty keys.
func load(topic string, partition, partitions, size int) []sinks.Message {
	var keys []string
	for n := 0; len(keys) < 50; n++ {
		if key := fmt.Sprint("key-", n); kafka.PartitionOf(key, partitions) == partition {
			keys = append(keys, key)
		}
	}
	batch := batchOf(topic, make([]string, recordsABatch)...)
	for i := range batch {
		batch[i].Key = keys[i%len(keys)]
		batch[i].Payload = []byte(strings.Repeat("x", size))
	}
	return batch
}

// turn produces batches to all partitions concurrently, and returns the number of
// records per second.
func turn(loads [][]sinks.Message, produce func([]sinks.Message)) float64 {
	start := time.Now()
	var producers sync.WaitGroup
	for _, load := range loads {
		producers.Go(func() {
			for range batchesATurn / len(loads) {
				produce(load)
			}
		})
	}
	producers.Wait()
	return float64(batchesATurn/len(loads)*len(loads)*recordsABatch) / time.Since(start).Seconds()
}

func bySink(b *testing.B, sink *kafka.Sink, load []sinks.Message) {
	for _, o := range sink.Send(context.Background(), load) {
		if o.Result != sinks.Delivered {
			b.Error(o)
			return
		}
	}
}

// byClient produces the same records with the library alone.
func byClient(b *testing.B, bare *kafkago.Client, topic string, partitions int, load []sinks.Message) {
	partition := kafka.PartitionOf(load[0].Key, partitions)
	records := make([]kafkago.Record, len(load))
	for i, m := range load {
		records[i] = kafkago.Record{
			Key: kafkago.NewBytes([]byte(m.Key)), Value: kafkago.NewBytes(m.Payload),
			Headers: []kafkago.Header{{Key: "rowrelay-message-id", Value: []byte(m.ID)}},
		}
	}
	answer, err := bare.Produce(context.Background(), &kafkago.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafkago.RequireAll, Records: kafkago.NewRecordReader(records...),
	})
	if err != nil || answer.Error != nil {
		b.Error(err, answer)
	}
}

func median(figures []float64) float64 {
	slices.Sort(figures)
	return figures[len(figures)/2]
}
