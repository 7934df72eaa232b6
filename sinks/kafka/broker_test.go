package kafka_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// server returns the address of a server that deploy/servers starts, from an
// environment variable.
func server(t testing.TB, variable string) string {
	t.Helper()
	address := os.Getenv(variable)
	if address == "" && os.Getenv("REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not set: deploy/servers/servers up starts the server", variable)
	}
	if address == "" {
		t.Skipf("%s is not set: deploy/servers/servers up starts the server", variable)
	}
	return address
}

func broker(t testing.TB) string { return server(t, "ROWRELAY_TEST_KAFKA") }

// olderThan reports whether the broker's version is older than this one, such as 3.6. The version is in the servers' files; a
// broker without these files counts as new.
func olderThan(t testing.TB, major, minor int) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(logins(t).Get("folder"), "version"))
	if err != nil {
		return false
	}
	var version [2]int
	if _, err := fmt.Sscanf(string(text), "%d.%d", &version[0], &version[1]); err != nil {
		t.Fatal(err)
	}
	return slices.Compare(version[:], []int{major, minor}) < 0
}

// fake returns an in-memory cluster, in which tests can inject errors.
func fake(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// client returns a client of another library than the sink's.
func client(t testing.TB, addresses []string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	options = append(options, kgo.SeedBrokers(addresses...), kgo.MetadataMinAge(10*time.Millisecond))
	c, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// patience is the time-out for events that must happen eventually, even on a very slow machine.
const patience = 5 * time.Minute

// enough is a time-out within which a broker answers on any machine. It is short because some tests
// wait until it ends.
const enough = 5 * time.Second

var topics atomic.Int64

// newTopic creates a topic for the test, with settings in the form name=value.
func newTopic(t testing.TB, addresses []string, partitions int32, settings ...string) string {
	t.Helper()
	name := fmt.Sprintf("test-%d-%04d", time.Now().UnixNano(), topics.Add(1)) // all names have the same length, as link.instead requires
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = name, partitions, -1
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, &value
		wanted.Configs = append(wanted.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	c := client(t, addresses)
	answer, err := request.RequestWith(t.Context(), c)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteTopic(t, addresses, name) })
	for end := time.Now().Add(patience); !isThere(t, c, name, partitions); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a new topic has no leaders")
		}
	}
	return name
}

func deleteTopic(t testing.TB, addresses []string, name string) {
	t.Helper()
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TopicNames, request.Topics = []string{name}, []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	c, err := kgo.NewClient(kgo.SeedBrokers(addresses...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := request.RequestWith(context.Background(), c); err != nil {
		t.Error(err)
	}
}

// isThere reports whether the leaders of all partitions answer. A new topic appears in
// the metadata before its leaders are ready.
func isThere(t testing.TB, c *kgo.Client, name string, partitions int32) bool {
	t.Helper()
	request, topic := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic()
	topic.Topic = name
	for n := range partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = n, -1
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(t.Context(), c)
	if err != nil || len(answer.Topics) == 0 {
		return false
	}
	bad := func(p kmsg.ListOffsetsResponseTopicPartition) bool { return p.ErrorCode != 0 }
	return len(answer.Topics[0].Partitions) == int(partitions) && !slices.ContainsFunc(answer.Topics[0].Partitions, bad)
}

// newSink makes a sink and opens it.
func newSink(t testing.TB, options kafka.Options) *kafka.Sink {
	t.Helper()
	sink, err := kafka.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sink
}

// made counts messages, so that each has a unique id.
var made atomic.Int64

func message(topic, key, payload string) sinks.Message {
	n := made.Add(1)
	return sinks.Message{
		Message:  outbox.Message{ID: fmt.Sprintf("0195c0de-0000-7000-8000-%012d", n), Topic: topic, Key: key, Payload: []byte(payload)},
		Sequence: n, Attempt: 1, CreatedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
}

// batchOf returns one message per key.
func batchOf(topic string, keys ...string) []sinks.Message {
	batch := make([]sinks.Message, len(keys))
	for i, key := range keys {
		batch[i] = message(topic, key, fmt.Sprint(i))
	}
	return batch
}

// summary returns one letter per outcome: Delivered, Retry, X for rejected,
// Unavailable, Postponed, Blocked, Cancelled.
func summary(outcomes []sinks.Outcome) string {
	var text strings.Builder
	for _, o := range outcomes {
		letter := map[sinks.Result]string{sinks.Delivered: "D", sinks.Retry: "R", sinks.Reject: "X", sinks.Unavailable: "U"}[o.Result]
		if o.Result == sinks.Unsent && o.RetryAfter > 0 {
			letter = "P"
		} else if o.Result == sinks.Unsent {
			letter = map[sinks.Reason]string{sinks.ReasonBlocked: "B", sinks.ReasonCancelled: "C"}[o.Reason]
		}
		text.WriteString(letter)
	}
	return text.String()
}

// records reads n records of a topic from its start, with another library than the
// sink's.
func records(t testing.TB, addresses []string, topic string, n int, options ...kgo.Opt) []*kgo.Record {
	t.Helper()
	c := client(t, addresses, append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []*kgo.Record
	for len(got) < n {
		fetches := c.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records arrived", len(got), n)
		}
		got = append(got, fetches.Records()...)
	}
	c.Close()
	return got
}

// values returns the payloads of the records with a key, separated by spaces.
func values(got []*kgo.Record, key string) string {
	var texts []string
	for _, r := range got {
		if string(r.Key) == key {
			texts = append(texts, string(r.Value))
		}
	}
	return strings.Join(texts, " ")
}

func numbers(t testing.TB, text string) []int {
	t.Helper()
	var list []int
	for _, word := range strings.Fields(text) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}
