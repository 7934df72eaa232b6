package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// TestOversized: a record that exceeds max_message_bytes or the broker's limit is
// rejected. The other records of the batch are delivered, except those of its key.
func TestOversized(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	for name, most := range map[string]int{"by the settings": 3000, "by the broker": 1 << 20} {
		topic := newTopic(t, addresses, 1, "max.message.bytes=3000")
		sink := newSink(t, kafka.Options{Brokers: addresses, MaxMessageBytes: most})
		batch := batchOf(topic, "a", "b", "a", "c", "", "b", "d")
		batch[1].Payload = []byte(strings.Repeat("x", 3000))
		outcomes := sink.Send(t.Context(), batch)
		if got := summary(outcomes); got != "DXDDDBD" || outcomes[1].Reason != sinks.ReasonTooLarge {
			t.Errorf("%s: %s %s %s", name, got, outcomes[1].Reason, outcomes[1].Detail)
		}
		if got := values(records(t, addresses, topic, 5), "a"); got != "0 2" {
			t.Errorf("%s: of the key, %s arrived", name, got)
		}
	}
}

// TestBatchOfExactlyTheMaximumSize: the broker accepts a batch of exactly the maximum size, and the sink rejects a larger one.
func TestBatchOfExactlyTheMaximumSize(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	const most = 5000
	topic := newTopic(t, addresses, 1, "max.message.bytes=5000")
	sink := newSink(t, kafka.Options{Brokers: addresses, MaxMessageBytes: most})
	m := message(topic, "", "")
	size := func() int {
		batch, err := kafka.Encoded(sink, m)
		if err != nil {
			t.Fatal(err)
		}
		return len(batch)
	}
	m.Payload = make([]byte, most-size()-2) // two length prefixes grow by one byte each
	if got := size(); got != most {
		t.Fatalf("the batch has %d bytes, want %d", got, most)
	}
	over := m
	over.Payload = make([]byte, len(m.Payload)+1)
	for want, m := range map[string]sinks.Message{"D": m, "X": over} {
		if outcomes := sink.Send(t.Context(), []sinks.Message{m}); summary(outcomes) != want {
			t.Errorf("%s %s, want %s", summary(outcomes), outcomes[0].Detail, want)
		}
	}
}

// TestLargeBatchesAreDivided: a Send has more bytes than the maximum size of a batch.
func TestLargeBatchesAreDivided(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 2, "max.message.bytes=10000")
	sink := newSink(t, kafka.Options{Brokers: addresses, MaxMessageBytes: 10000})
	var keys []string
	for i := range 200 {
		keys = append(keys, string(rune('a'+i%3)))
	}
	batch := batchOf(topic, keys...)
	for i := range batch {
		batch[i].Payload = append(batch[i].Payload, strings.Repeat(" ", 400)...)
	}
	if got := summary(sink.Send(t.Context(), batch)); got != strings.Repeat("D", len(batch)) {
		t.Errorf("outcomes %s", got)
	}
	got := records(t, addresses, topic, len(batch))
	for key := range 3 {
		last := -1
		for _, n := range numbers(t, values(got, string(rune('a'+key)))) {
			if n < last {
				t.Errorf("%d arrived after %d", n, last)
			}
			last = n
		}
	}
}

// TestRefusedRecordsAreIsolated: the broker names the refused records and writes no
// record of the batch. The sink delivers the other records without them.
func TestRefusedRecordsAreIsolated(t *testing.T) {
	t.Parallel()
	addresses, oldest := []string{broker(t)}, "message.timestamp.before.max.ms"
	if olderThan(t, 3, 6) {
		oldest = "message.timestamp.difference.max.ms"
	}
	for name, test := range map[string]struct {
		setting string
		spoil   func(*sinks.Message)
		want    string
	}{
		"no key in a compacted topic": {"cleanup.policy=compact", func(m *sinks.Message) { m.Key = "" }, "XDXDXDD"},
		"a time that is too old":      {oldest + "=3600000", func(m *sinks.Message) { m.CreatedAt = time.Unix(1000, 0) }, "XDXDXBB"},
	} {
		topic := newTopic(t, addresses, 1, test.setting)
		sink := newSink(t, kafka.Options{Brokers: addresses, CreatedTime: true})
		batch := batchOf(topic, "a", "b", "c", "d", "e", "a", "c")
		for i := range batch {
			batch[i].CreatedAt = time.Now()
		}
		for _, i := range []int{0, 2, 4} {
			test.spoil(&batch[i])
		}
		outcomes := sink.Send(t.Context(), batch)
		if got := summary(outcomes); got != test.want || outcomes[0].Reason != sinks.ReasonInvalid || outcomes[0].Detail == "" {
			t.Errorf("%s: %s %s %q", name, got, outcomes[0].Reason, outcomes[0].Detail)
		}
		if got := values(records(t, addresses, topic, strings.Count(test.want, "D")), "d"); got != "3" {
			t.Errorf("%s: of key d, %s arrived", name, got)
		}
	}
}

// TestUnnamedRefusedRecordIsFoundByHalving: the broker refuses a batch because of a
// record that it doesn't name. The sink finds the record by halving the batch.
func TestUnnamedRefusedRecordIsFoundByHalving(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	batch := batchOf("t", "a", "b", "c", "d", "e", "f", "g", "e")
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		if placeOf(produce.Topics[0].Partitions[0].Records, batch[4].ID) < 0 {
			return nil, nil, false
		}
		return produced(produce, kerr.InvalidRecord), nil, true
	})
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs()})
	if got := summary(sink.Send(t.Context(), batch)); got != "DDDDXDDB" {
		t.Errorf("outcomes %s", got)
	}
}

// TestUnknownTopics: messages for an unknown topic are postponed or, with
// ParkUnknownTopics, rejected. Their detail names the topic. Messages for other
// topics are delivered.
func TestUnknownTopics(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	for park, want := range map[bool]string{false: "DPDPD", true: "DXDXD"} {
		sink := newSink(t, kafka.Options{Brokers: addresses, ParkUnknownTopics: park})
		batch := batchOf(topic, "a", "b", "c", "d", "e")
		batch[1].Topic, batch[3].Topic = "no-such-topic", "no-such-topic"
		outcomes := sink.Send(t.Context(), batch)
		if got := summary(outcomes); got != want || outcomes[1].Reason != sinks.ReasonUnroutable || !strings.Contains(outcomes[1].Detail, "no-such-topic") {
			t.Errorf("%s %s %s", got, outcomes[1].Reason, outcomes[1].Detail)
		}
	}
	sink := newSink(t, kafka.Options{Brokers: addresses, Topic: "no-such-topic"})
	if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "no-such-topic") {
		t.Errorf("Open: %v", err)
	}
}

// TestMissingTopicThatIsCreatedLater: each Send fetches a missing topic again, if all messages go to it.
func TestMissingTopicThatIsCreatedLater(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Topic: "later"})
	if got := summary(sink.Send(t.Context(), batchOf("t", "a"))); got != "U" {
		t.Errorf("before: %s", got)
	}
	if err := cluster.CreateTopic("later", 1, nil); err != nil {
		t.Fatal(err)
	}
	if got := summary(sink.Send(t.Context(), batchOf("t", "a"))); got != "D" {
		t.Errorf("after: %s", got)
	}
}

// TestCreateTopics: the sink creates a topic with the configured number of partitions.
func TestCreateTopics(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	fresh := newTopic(t, addresses, 1) + "-made"
	t.Cleanup(func() { deleteTopic(t, addresses, fresh) })
	sink := newSink(t, kafka.Options{Brokers: addresses, CreateTopics: true, CreatePartitions: 3, PartitionHeader: "p"})
	batch := batchOf(fresh, "a", "b")
	batch[1].Headers = map[string]string{"p": "2"}
	for range 2 {
		if outcomes := sink.Send(t.Context(), batch); summary(outcomes) != "DD" {
			t.Errorf("%s: %s", summary(outcomes), outcomes[0].Detail)
		}
	}
}

func TestCheckCreatesNoTopic(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string][]string{"fake": fake(t).ListenAddrs(), "broker": {broker(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := fmt.Sprintf("test-check-%d", time.Now().UnixNano())
			options := kafka.Options{Brokers: addresses, Topic: topic, CreateTopics: true}
			if err := newSink(t, options).Check(t.Context()); err != nil {
				t.Errorf("check before the first start: %v", err)
			}
			options.CreateTopics = false
			for what, look := range map[string]func(context.Context) error{"check": newSink(t, options).Check, "open": newSink(t, options).Open} {
				if err := look(t.Context()); err == nil {
					t.Errorf("%s: Check has created the topic", what)
				}
			}
		})
	}
}
