package kafka_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// TestCompression: with each codec, batches are smaller and records arrive unchanged.
func TestCompression(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1, "max.message.bytes=20000")
	for _, compression := range []string{"gzip", "snappy", "lz4", "zstd"} {
		sink := newSink(t, kafka.Options{Brokers: addresses, Compression: compression, MaxMessageBytes: 20000})
		batch := batchOf(topic, compression, compression)
		batch[0].Payload = bytes.Repeat([]byte("0123456789"), 10000) // over the limit without compression
		if outcomes := sink.Send(t.Context(), batch); summary(outcomes) != "DD" {
			t.Errorf("%s: %s %s", compression, summary(outcomes), outcomes[0].Detail)
		}
	}
	for i, r := range records(t, addresses, topic, 8) {
		if i%2 == 0 && len(r.Value) != 100000 || i%2 == 1 && string(r.Value) != "1" {
			t.Errorf("with %s, %d bytes arrived", r.Key, len(r.Value))
		}
	}
}

// TestTimes: a record's timestamp is the time of sending or, with CreatedTime, the
// time at which the message was written.
func TestTimes(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	before := time.Now().Truncate(time.Millisecond)
	m := message("t", "a", "")
	for _, created := range []bool{false, true} {
		newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), CreatedTime: created}).Send(t.Context(), []sinks.Message{m})
	}
	got := records(t, cluster.ListenAddrs(), "t", 2)
	if got[0].Timestamp.Before(before) || got[0].Timestamp.After(time.Now()) {
		t.Errorf("by default, a record's timestamp is %v", got[0].Timestamp)
	}
	if !got[1].Timestamp.Equal(m.CreatedAt) {
		t.Errorf("a record's timestamp is %v, want the message's, %v", got[1].Timestamp, m.CreatedAt)
	}
}

// TestTopics: the topic is the message's, a fixed one, or a template with headers. A
// message is rejected if its topic is not a valid name in Kafka.
func TestTopics(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "orders", "fixed", "eu.orders.v1"))
	for _, test := range []struct{ template, topic, want, own string }{
		{"", "orders", "orders", ""},
		{"fixed", "orders", "fixed", "orders"},
		{"{header:region}.{topic}.v1", "orders", "eu.orders.v1", "orders"},
		{"", "größe", "", ""},
		{"", "..", "", ""},
		{"", strings.Repeat("x", 250), "", ""},
		{"{header:missing}", "orders", "", ""},
	} {
		sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Topic: test.template})
		m := message(test.topic, "a", "")
		m.Headers = map[string]string{"region": "eu", "rowrelay-dead-letter-reason": "refused"}
		outcomes := sink.Send(t.Context(), []sinks.Message{m})
		if test.want == "" {
			if o := outcomes[0]; o.Result != sinks.Reject || o.Reason != sinks.ReasonInvalid || o.Detail == "" {
				t.Errorf("%+v: %+v", test, o)
			}
			continue
		}
		if summary(outcomes) != "D" {
			t.Errorf("%+v: %+v", test, outcomes[0])
			continue
		}
		got := records(t, cluster.ListenAddrs(), test.want, 1)[0]
		if own := headerOf(got, "rowrelay-topic"); own != test.own || headerOf(got, "rowrelay-message-id") != m.ID || headerOf(got, "rowrelay-dead-letter-reason") != "refused" {
			t.Errorf("%+v: the record has the headers %v", test, got.Headers)
		}
	}
}

func headerOf(r *kgo.Record, name string) string {
	i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
	if i < 0 {
		return ""
	}
	return string(r.Headers[i].Value)
}

// TestPartitions: a header can name the partition. Otherwise a key always has the
// same partition, and messages without a key share one partition per batch.
func TestPartitions(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(5, "t"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), PartitionHeader: "p"})
	var free []string
	for range 5 {
		outcomes := sink.Send(t.Context(), batchOf("t", "foobar", "", ""))
		partition := strings.Split(outcomes[0].Receipt, "/")[0]
		if want := fmt.Sprint(kafka.PartitionOf("foobar", 5)); partition != want {
			t.Errorf("the key is in partition %s, want %s", partition, want)
		}
		one, other := strings.Split(outcomes[1].Receipt, "/")[0], strings.Split(outcomes[2].Receipt, "/")[0]
		if one != other {
			t.Errorf("two messages without a key are in partitions %s and %s", one, other)
		}
		free = append(free, one)
	}
	if slices.Sort(free); len(slices.Compact(free)) != 5 {
		t.Errorf("five batches without keys used the partitions %v", free)
	}
	for header, want := range map[string]string{"3": "D", "0": "D", "5": "X", "-1": "X", "three": "X"} {
		m := message("t", "foobar", "")
		m.Headers = map[string]string{"p": header}
		o := sink.Send(t.Context(), []sinks.Message{m})
		if summary(o) != want || want == "D" && !strings.HasPrefix(o[0].Receipt, header+"/") {
			t.Errorf("partition %s: %+v", header, o[0])
		}
	}
}

// TestReceipts: a receipt is the record's partition and offset.
func TestReceipts(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs()})
	for n := range 3 {
		for i, o := range sink.Send(t.Context(), batchOf("t", "a", "b")) {
			if want := fmt.Sprintf("0/%d", 2*n+i); o.Receipt != want {
				t.Errorf("receipt %s, want %s", o.Receipt, want)
			}
		}
	}
}

// TestKeyInSeveralTopics: messages of a key for several partitions are sent one by
// one. After a failed message, the later ones wait.
func TestKeyInSeveralTopics(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t", "u"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), MaxMessageBytes: 2000})
	batch := batchOf("t", "a", "a", "a", "b", "a", "b", "c")
	for _, i := range []int{1, 4, 5} {
		batch[i].Topic = "u"
	}
	if got := summary(sink.Send(t.Context(), batch)); got != "DDDDDDD" {
		t.Errorf("outcomes %s", got)
	}
	batch[1].Payload = make([]byte, 3000)
	if got := summary(sink.Send(t.Context(), batch)); got != "DXBDBDD" {
		t.Errorf("with a message that is too large: %s", got)
	}
	if got := values(records(t, cluster.ListenAddrs(), "t", 5), "a"); got != "0 2 0" {
		t.Errorf("of the key, %s arrived", got)
	}
}

// TestReservedHeadersAreRejected: a message can't set headers that are reserved or not UTF-8.
func TestReservedHeadersAreRejected(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs()})
	for _, name := range []string{"rowrelay-message-id", "RowRelay-anything", "not UTF-8 \xff"} {
		m := message("t", "a", "")
		m.Headers = map[string]string{name: "v"}
		if o := sink.Send(t.Context(), []sinks.Message{m})[0]; o.Result != sinks.Reject || !strings.Contains(o.Detail, "header") {
			t.Errorf("header %q: %+v", name, o)
		}
	}
}

// TestConsoleConsumer: Kafka's console consumer reads the records.
func TestConsoleConsumer(t *testing.T) {
	t.Parallel()
	address := broker(t)
	if olderThan(t, 4, 2) {
		t.Skip("before Kafka 4.2 this program had other options")
	}
	topic := newTopic(t, []string{address}, 1)
	sink := newSink(t, kafka.Options{Brokers: []string{address}, Compression: "zstd"})
	batch := batchOf(topic, "a", "", "größe")
	batch[1].Headers = map[string]string{"x": "y"}
	batch[2].Payload = nil
	if got := summary(sink.Send(t.Context(), batch)); got != "DDD" {
		t.Fatalf("outcomes %s", got)
	}
	program := exec.Command(filepath.Join(logins(t).Get("folder"), "tool"), "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"--bootstrap-server", address, "--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "300000",
		"--formatter-property", "print.key=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.offset=true",
		"--formatter-property", "null.literal=NULL")
	program.Stderr = os.Stderr
	output, err := program.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("Offset:0\trowrelay-message-id:%s\ta\t0\nOffset:1\tx:y,rowrelay-message-id:%s\tNULL\t1\nOffset:2\trowrelay-message-id:%s\tgröße\tNULL\n",
		batch[0].ID, batch[1].ID, batch[2].ID)
	if string(output) != want {
		t.Errorf("it printed\n%s, want\n%s", output, want)
	}
}
