package kafka_test

import (
	"context"
	"flag"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

var logRecords = flag.Int("log-records", 200_000, "the number of records in the log of TestSearchOfALongLog")

const day = 24 * time.Hour

// reads makes a fake cluster answer each Fetch with one record batch, and calls told
// with the offset of each Fetch. The cluster doesn't know any producer.
func reads(cluster *kfake.Cluster, told func(offset int64)) {
	describing(cluster)
	cluster.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range request.(*kmsg.FetchRequest).Topics {
			topic.Partitions[0].PartitionMaxBytes = 1
			told(topic.Partitions[0].FetchOffset)
		}
		return nil, nil, false
	})
}

// others writes n batches of two records, like other producers.
func others(t testing.TB, addresses []string, topic string, n int) {
	t.Helper()
	c := client(t, addresses, kgo.DisableIdempotentWrite(), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	for range n {
		if err := c.ProduceSync(t.Context(), kgo.StringRecord("a"), kgo.StringRecord("b")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSearchKeepsItsProgress: the next Send continues a search that was interrupted.
// Until then the outcome is unknown, and its detail reports the progress.
func TestSearchKeepsItsProgress(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	addresses := cluster.ListenAddrs()
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	batch := restamped(t, planned(t, sink, batchOf("t", "a", "b")), "", -1, day)
	sink = opened(t, kafka.Options{Brokers: addresses}) // the sink of another relay
	others(t, addresses, "t", 30)

	var highest, steps atomic.Int64
	var cut atomic.Pointer[context.CancelFunc]
	reads(cluster, func(offset int64) {
		if before := highest.Swap(offset); offset < before {
			t.Errorf("the search reads at %d after %d", offset, before)
		}
		if steps.Add(1)%4 == 0 {
			(*cut.Load())() // during a read
		}
	})
	sends := 0
	for ; sends < 40; sends++ {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, nil)
		expired, expire := expirable(ctx)
		cut.Store(&expire)
		outcomes := sink.Send(expired, batch)
		cancel()
		if summary(outcomes) == "BB" {
			break
		}
		o := outcomes[0]
		if wantSummary(t, "while it searches", outcomes, "R"); o.Reason != sinks.ReasonUnknown || !strings.Contains(o.Detail, "t/0") || !strings.Contains(o.Detail, "of 60") {
			t.Errorf("while it searches: %+v", o)
		}
	}
	if sends < 5 || sends > 12 {
		t.Errorf("the search took %d sends", sends)
	}
}

// expirable returns a context whose deadline expires when the returned function is called.
func expirable(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	return expiring{ctx}, cancel
}

type expiring struct{ context.Context }

func (e expiring) Err() error {
	if e.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// TestYoungBatchIsNotSearchedFor: brokers certainly remember the producer of a young
// batch. If they don't know the producer, the batch was not written, and the sink
// doesn't search the log.
func TestYoungBatchIsNotSearchedFor(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	addresses := cluster.ListenAddrs()
	reads(cluster, func(offset int64) { t.Errorf("the log is read at %d", offset) })
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	batch := planned(t, sink, batchOf("t", "a", "b"))
	others(t, addresses, "t", 3)
	wantSummary(t, "a part of a young batch", sink.Send(t.Context(), batch[:1]), "B")
}

// TestOldTimestampsAreSearchedFor: brokers determine a producer's age by the
// timestamps of its records. So they may already have forgotten a producer whose
// records have the timestamps of old messages, and the sink searches the log.
func TestOldTimestampsAreSearchedFor(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	addresses := cluster.ListenAddrs()
	sink := idempotent(t, kafka.Options{Brokers: addresses, CreatedTime: true}) // messages have the timestamp 2026-03-01
	batch := planned(t, sink, batchOf("t", "a", "b"))
	wantSummary(t, "the first time", sink.Send(t.Context(), batch), "D")
	var fetched atomic.Int64
	reads(cluster, func(int64) { fetched.Add(1) })
	wantSummary(t, "again", sink.Send(t.Context(), batch), "D")
	wantSummary(t, "a part", sink.Send(t.Context(), batch[1:]), "D")
	if fetched.Load() == 0 {
		t.Error("the log was not searched")
	}
	if got := records(t, addresses, "t", 2); len(got) != 2 {
		t.Errorf("the log has %d records, want 2", len(got))
	}
}

// TestPlanKnowsTheEndOfTheLog: a search starts at the end offset that the log had
// shortly before the plan, even if other producers have written to the log.
func TestPlanKnowsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	addresses := cluster.ListenAddrs()
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	wantSummary(t, "before", sink.Send(t.Context(), planned(t, sink, batchOf("t", "a"))), "D")
	others(t, addresses, "t", 20)
	kafka.AgeEnds(sink, time.Hour)
	batch := restamped(t, planned(t, sink, batchOf("t", "a", "b")), "", -1, day)
	sink = opened(t, kafka.Options{Brokers: addresses}) // the sink of another relay
	var lowest atomic.Int64
	lowest.Store(1000)
	reads(cluster, func(offset int64) { lowest.Store(min(lowest.Load(), offset)) })
	others(t, addresses, "t", 1)
	if wantSummary(t, "never sent", sink.Send(t.Context(), batch), "B"); lowest.Load() != 41 {
		t.Errorf("the search began at %d, want 41", lowest.Load())
	}
}

// TestSearchOfALongLog searches a long log of a real broker for a batch that was
// written and one that was not. It logs how long this takes.
func TestSearchOfALongLog(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic, other := newTopic(t, addresses, 1, "max.message.bytes=20000000"), newTopic(t, addresses, 1)
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	never := restamped(t, planned(t, sink, batchOf(topic, "a", "b")), "", -1, day)
	there := planned(t, sink, batchOf(topic, "a", "b"))
	fill(t, addresses, topic, *logRecords)
	wantSummary(t, "the first time", sink.Send(t.Context(), there), "D")

	asker := forgetful(t, addresses, topic, other)
	for _, c := range []struct {
		batch []sinks.Message
		want  string
	}{{never, "B"}, {restamped(t, there, "", -1, day), "D"}} {
		began, sends := time.Now(), 1
		outcomes := send30s(t, asker, c.batch)
		for ; summary(outcomes)[:1] != c.want && sends < 6; sends++ {
			t.Logf("after %v: %+v", time.Since(began), outcomes[0])
			outcomes = send30s(t, asker, c.batch)
		}
		wantSummary(t, "in a long log", outcomes, c.want)
		t.Logf("%d records: %s after %v, %d sends", *logRecords, summary(outcomes), time.Since(began), sends)
	}
}

// forgetful returns a sink whose brokers seem to have forgotten the producers of a
// topic: its requests ask about another topic, whose name has the same length.
func forgetful(t testing.TB, addresses []string, topic, other string) *kafka.IdempotentSink {
	between := newLink()
	between.instead(topic, other)
	return opened(t, kafka.Options{Brokers: addresses, Dial: between.dial})
}

// opened returns an open sink.
func opened(t testing.TB, options kafka.Options) *kafka.IdempotentSink {
	t.Helper()
	sink := idempotent(t, options)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sink
}

// send30s calls Send with the default time-out of a relay.
func send30s(t testing.TB, sink sinks.Sink, batch []sinks.Message) []sinks.Outcome {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return sink.Send(ctx, batch)
}

// fill writes n records of 100 bytes, compressed, in large batches.
func fill(t testing.TB, addresses []string, topic string, n int) {
	t.Helper()
	c := client(t, addresses, kgo.DisableIdempotentWrite(), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		kgo.ProducerBatchMaxBytes(4<<20), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(200_000))
	value := []byte(strings.Repeat("0123456789", 10))
	var failed atomic.Pointer[error]
	for range n {
		c.Produce(t.Context(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

// TestConcurrentSendsSearchOnePartition: concurrent Sends each find their batch in the log of one
// partition. The race detector checks the shared search.
func TestConcurrentSendsSearchOnePartition(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	addresses := cluster.ListenAddrs()
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	var batches [][]sinks.Message
	for range 4 {
		batch := planned(t, sink, batchOf("t", "a", "b"))
		wantSummary(t, "the first time", sink.Send(t.Context(), batch), "D")
		batches = append(batches, restamped(t, batch, "", -1, day))
	}
	reads(cluster, func(int64) {})
	sink = opened(t, kafka.Options{Brokers: addresses}) // the sink of another relay
	var sends sync.WaitGroup
	for _, batch := range batches {
		sends.Go(func() {
			for range 5 {
				wantSummary(t, "again", sink.Send(t.Context(), batch), "D")
			}
		})
	}
	sends.Wait()
}
