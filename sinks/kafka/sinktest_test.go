package kafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/settings"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// TestConformance runs the suite with a real broker that requires a login.
func TestConformance(t *testing.T) {
	t.Parallel()
	addresses, at := []string{broker(t)}, logins(t)
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		h := harness(t, addresses, newTopic(t, addresses, 6, "max.message.bytes=2000000"), kafka.Options{
			Brokers: []string{at.Get("login")}, SASL: "plain", Username: "rowrelay", Password: settings.Secret(at.Get("password")),
		})
		h.Secrets = []string{at.Get("password")}
		return h
	})
}

// harness returns a harness for any broker.
func harness(t testing.TB, addresses []string, topic string, options kafka.Options) sinktest.Harness {
	t.Helper()
	between := newLink()
	options.MaxMessageBytes, options.LeaderTimeout, options.Dial = 2000000, enough, between.dial
	sink, err := kafka.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return sinktest.Harness{
		Sink: sink, Topic: topic, Received: reading(t, addresses, topic),
		Break: func() { between.setCut(true) }, Repair: func() { between.setCut(false) }, Stall: between.stall,
		Astray: func(m *sinks.Message) { m.Topic = topic + "-astray" },
	}
}

// reading returns a function that returns all messages that have arrived.
func reading(t testing.TB, addresses []string, topic string) func() []outbox.Message {
	t.Helper()
	c := client(t, addresses, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(20*time.Millisecond))
	var mu sync.Mutex
	var got []outbox.Message
	return func() []outbox.Message {
		mu.Lock()
		defer mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		for _, r := range c.PollFetches(ctx).Records() {
			got = append(got, asMessage(r))
		}
		return slices.Clone(got)
	}
}

// asMessage converts a record back to a message.
func asMessage(r *kgo.Record) outbox.Message {
	m := outbox.Message{Topic: r.Topic, Key: string(r.Key), Payload: r.Value}
	for _, h := range r.Headers {
		if h.Key == "rowrelay-message-id" {
			m.ID = string(h.Value)
			continue
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[h.Key] = string(h.Value)
	}
	return m
}

// TestConformanceWithBrokerErrors runs the suite with a fake broker, whose answers the suite chooses.
func TestConformanceWithBrokerErrors(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		cluster := fake(t, kfake.SeedTopics(16, "sinktest"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "2000000"}))
		h := harness(t, cluster.ListenAddrs(), "sinktest", kafka.Options{Brokers: cluster.ListenAddrs()})
		kafka.StickTo(h.Sink.(*kafka.Sink), 0) // a partition that none of the suite's keys uses
		h.Answer = answering(cluster)
		return h
	})
}

// answering returns a function that sets the broker's answer for a message. For a
// Reject the broker names the record in its error. For a Retry its answer leaves it
// unknown whether the batch was written.
func answering(cluster *kfake.Cluster) func(id string, result sinks.Result) {
	var mu sync.Mutex
	answers := map[string]sinks.Result{}
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		produce := request.(*kmsg.ProduceRequest)
		batch := produce.Topics[0].Partitions[0].Records
		for id, result := range answers {
			if !bytes.Contains(batch, []byte(id)) {
				continue
			}
			if result == sinks.Retry {
				return produced(produce, kerr.RequestTimedOut), nil, true
			}
			return produced(produce, kerr.InvalidRecord, placeOf(batch, id)), nil, true
		}
		return nil, nil, false
	})
	return func(id string, result sinks.Result) {
		mu.Lock()
		defer mu.Unlock()
		if answers[id] = result; result == sinks.Delivered {
			delete(answers, id)
		}
	}
}

// produced returns an answer with an error and the positions of the refused records.
func produced(request *kmsg.ProduceRequest, problem *kerr.Error, places ...int) *kmsg.ProduceResponse {
	answer := request.ResponseKind().(*kmsg.ProduceResponse)
	topic, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
	topic.Topic, partition.Partition = request.Topics[0].Topic, request.Topics[0].Partitions[0].Partition
	partition.ErrorCode, partition.BaseOffset = problem.Code, -1
	for _, place := range places {
		record := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		text := "this record is refused"
		record.RelativeOffset, record.ErrorMessage = int32(place), &text
		partition.ErrorRecords = append(partition.ErrorRecords, record)
	}
	topic.Partitions = append(topic.Partitions, partition)
	answer.Topics = append(answer.Topics, topic)
	return answer
}

// placeOf returns the position of a message in an uncompressed batch, or -1.
func placeOf(batch []byte, id string) int {
	for place, record := range recordsIn(batch) {
		if bytes.Contains(record, []byte(id)) {
			return place
		}
	}
	return -1
}

// recordsIn returns the records of an uncompressed batch.
func recordsIn(batch []byte) [][]byte {
	var parsed kmsg.RecordBatch
	if err := parsed.ReadFrom(batch); err != nil {
		panic(err)
	}
	var records [][]byte
	for rest := parsed.Records; len(rest) > 0; {
		length, width := binary.Varint(rest)
		records = append(records, rest[:width+int(length)])
		rest = rest[width+int(length):]
	}
	return records
}
