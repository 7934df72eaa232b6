package kafka_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// failing makes the brokers answer the first n produce requests with an error and
// write nothing.
func failing(cluster *kfake.Cluster, n int, problem *kerr.Error) {
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if n--; n < 0 {
			return nil, nil, false
		}
		return produced(request.(*kmsg.ProduceRequest), problem), nil, true
	})
}

// TestBrokerErrors: the sink sends a batch again if it was certainly not written. If
// it may have been written, the outcome is unknown. Later messages of the key wait.
func TestBrokerErrors(t *testing.T) {
	t.Parallel()
	const ever = 1 << 30
	for name, test := range map[string]struct {
		problem *kerr.Error
		times   int
		want    string
		reason  sinks.Reason
	}{
		"a leader that moved":          {kerr.NotLeaderForPartition, 2, "DDDD", ""},
		"no leader yet":                {kerr.LeaderNotAvailable, 1, "DDDD", ""},
		"a disk that failed":           {kerr.KafkaStorageError, 1, "DDDD", ""},
		"an older leader":              {kerr.FencedLeaderEpoch, 1, "DDDD", ""},
		"too few replicas for a while": {kerr.NotEnoughReplicas, 2, "DDDD", ""},
		"too few replicas":             {kerr.NotEnoughReplicas, ever, "UUBU", sinks.ReasonConnection},
		"no leader for long":           {kerr.NotLeaderForPartition, ever, "UUBU", sinks.ReasonConnection},
		"possibly written":             {kerr.RequestTimedOut, 1, "RRBR", sinks.ReasonUnknown},
		"written by too few replicas":  {kerr.NotEnoughReplicasAfterAppend, 1, "RRBR", sinks.ReasonUnknown},
		"an unknown error":             {kerr.UnknownServerError, 1, "RRBR", sinks.ReasonServerError},
		"no right to write":            {kerr.TopicAuthorizationFailed, 1, "PPBP", sinks.ReasonAuth},
		"an unknown compression":       {kerr.UnsupportedCompressionType, 1, "PPBP", sinks.ReasonUnroutable},
		"a quota":                      {kerr.ThrottlingQuotaExceeded, 1, "UUBU", sinks.ReasonThrottled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, kfake.SeedTopics(1, "t"))
			failing(cluster, test.times, test.problem)
			sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: enough})
			outcomes := sink.Send(t.Context(), batchOf("t", "a", "b", "a", ""))
			if got := summary(outcomes); got != test.want || outcomes[0].Reason != test.reason {
				t.Errorf("%s %s, want %s %s: %s", got, outcomes[0].Reason, test.want, test.reason, outcomes[0].Detail)
			}
		})
	}
}

// TestMovedLeaderIsFoundImmediately: a moved leader costs one try, and not the seconds until the next
// regular refresh of metadata.
func TestMovedLeaderIsFoundImmediately(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs()})
	quickest := time.Hour
	for range 6 {
		to := (cluster.LeaderFor("t", 0) + 1) % 3
		if err := cluster.MoveTopicPartition("t", 0, to); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if got := summary(sink.Send(t.Context(), batchOf("t", "a", "b"))); got != "DD" {
			t.Fatalf("after a move: %s", got)
		}
		quickest = min(quickest, time.Since(start))
	}
	if quickest > 3*time.Second { // a regular refresh would take up to a minute
		t.Errorf("after a move, each Send took %v or more", quickest)
	}
	if got := records(t, cluster.ListenAddrs(), "t", 12); len(got) != 12 {
		t.Errorf("the topic has %d records, want 12", len(got))
	}
}

// TestLostAnswer: the connection breaks after the broker has written a batch. The
// outcome is unknown, and a later message of the key is not sent.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	between := newLink()
	sink := newSink(t, kafka.Options{Brokers: addresses, Dial: between.dial})
	between.loseAnswers(true)
	outcomes := sink.Send(t.Context(), batchOf(topic, "a", "b", "a"))
	if got := summary(outcomes); got != "RRB" || outcomes[0].Reason != sinks.ReasonUnknown {
		t.Errorf("%s %s: %s", got, outcomes[0].Reason, outcomes[0].Detail)
	}
	between.loseAnswers(false)
	if got := summary(sink.Send(t.Context(), batchOf(topic, "a", "b", "a"))); got != "DDD" {
		t.Errorf("afterwards: %s", got)
	}
	if got := values(records(t, addresses, topic, 6), "a"); got != "0 2 0 2" {
		t.Errorf("of the key, %s arrived", got)
	}
}

// TestNothingIsWrittenAfterTheContextEnds: nothing writes to a connection after the
// context of a Send has ended.
func TestNothingIsWrittenAfterTheContextEnds(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	between := newLink()
	sink := newSink(t, kafka.Options{Brokers: addresses, Dial: between.dial, Concurrency: 1})
	reached, release := between.stall()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		if got := summary(sink.Send(ctx, batchOf(topic, "a"))); got != "R" {
			t.Errorf("the Send under way: %s", got)
		}
	})
	<-reached
	other.Go(func() {
		if got := summary(sink.Send(ctx, batchOf(topic, "b"))); got != "C" {
			t.Errorf("the Send that waits for the partition: %s", got)
		}
	})
	cancel()
	other.Wait()
	if n := between.produced(); n != 1 {
		t.Errorf("%d requests were written, want 1", n)
	}
	if open := between.count(); open > 1 {
		t.Errorf("%d connections are open, want at most one for metadata", open)
	}
}

// TestConcurrency: all Sends together have at most one batch in flight per partition,
// and at most Concurrency batches in total.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(8, "t"))
	for inFlight, want := range map[int]int{1: 1, 3: 3, 8: 4} {
		between := newLink()
		sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Dial: between.dial, Concurrency: inFlight, PartitionHeader: "p"})
		reached, release := between.stall()
		ctx, cancel := context.WithCancel(t.Context())
		var sends sync.WaitGroup
		for range 2 {
			batch := batchOf("t", "", "", "", "", "", "", "", "")
			for i := range batch {
				batch[i].Headers = map[string]string{"p": string(rune('0' + i%4))}
			}
			sends.Go(func() { sink.Send(ctx, batch) })
		}
		<-reached
		for deadline := time.Now().Add(patience); between.produced() < want && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // gives a surplus request time to appear
		if got := between.produced(); got != want {
			t.Errorf("with concurrency %d, %d batches are in flight, want %d", inFlight, got, want)
		}
		cancel()
		sends.Wait()
		release()
	}
}

// TestThrottle: the sink waits for the pause that the broker asked for. If the pause
// is too long for a Send, the sink returns it to the relay.
func TestThrottle(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	asked := make(chan int32, 2)
	asked <- 60
	asked <- 60000
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := produced(request.(*kmsg.ProduceRequest), &kerr.Error{})
		answer.ThrottleMillis = <-asked
		return answer, nil, true
	})
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: enough})
	start := time.Now()
	for range 2 {
		if got := summary(sink.Send(t.Context(), batchOf("t", "a"))); got != "D" {
			t.Errorf("Send: %s", got)
		}
	}
	if took := time.Since(start); took < 60*time.Millisecond {
		t.Errorf("the sink paused for %v, want at least 60 ms", took)
	}
	o := sink.Send(t.Context(), batchOf("t", "a"))[0]
	if o.Result != sinks.Unavailable || o.Reason != sinks.ReasonThrottled || o.RetryAfter < 50*time.Second {
		t.Errorf("after a long pause was asked for: %+v", o)
	}
}

// TestRequests: the sink requests metadata only for the topics in use, and requests
// acknowledgements of all replicas, within half of RequestTimeout.
func TestRequests(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t", "u", "not-ours"))
	var mu sync.Mutex
	var wait, acks []int
	var asked []string
	all := false
	cluster.Control(func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		switch r := request.(type) {
		case *kmsg.ProduceRequest:
			wait, acks = append(wait, int(r.TimeoutMillis)), append(acks, int(r.Acks))
		case *kmsg.MetadataRequest:
			all = all || r.Topics == nil || r.AllowAutoTopicCreation
			for _, topic := range r.Topics {
				asked = append(asked, *topic.Topic)
			}
		}
		return nil, nil, false
	})
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), RequestTimeout: 7 * time.Second})
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"t", "u", "t"} {
		sink.Send(t.Context(), batchOf(topic, "a"))
	}
	mu.Lock()
	defer mu.Unlock()
	if all || !slices.Equal(asked, []string{"t", "u"}) {
		t.Errorf("requested all topics or their creation: %v; requested topics: %v", all, asked)
	}
	if !slices.Equal(acks, []int{-1, -1, -1}) || len(wait) != 3 || wait[0] < 3000 || wait[0] > 3500 {
		t.Errorf("acks %v, time-outs %v ms", acks, wait)
	}
}

// TestClosedIdleConnectionIsNoticed: the sink notices that the broker has closed an
// idle connection before it writes a batch to it, whose outcome would be unknown.
func TestClosedIdleConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	for name, age := range map[string]time.Duration{"some seconds": 5 * time.Second, "minutes": 5 * time.Minute} {
		between := newLink()
		sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Dial: between.dial})
		for range 2 {
			if got := summary(sink.Send(t.Context(), batchOf("t", "a"))); got != "D" {
				t.Errorf("after %s: %s", name, got)
			}
			kafka.Age(sink, age)
			between.expire()
		}
		if made := between.made(); made != 2 {
			t.Errorf("after %s: %d connections were made, want 2", name, made)
		}
	}
}

// TestAnswersWithUnknownRecords: an answer rejects records that the batch doesn't
// have. Send must not repeat the batch forever.
func TestAnswersWithUnknownRecords(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return produced(request.(*kmsg.ProduceRequest), kerr.InvalidRecord, 99, -1), nil, true
	})
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs()})
	if got := summary(sink.Send(t.Context(), batchOf("t", "a", "b", "c"))); got != "XXX" {
		t.Errorf("outcomes %s", got)
	}
}

// TestTopicExpiresWhileAnotherIsFetched: the cached metadata of a topic becomes too
// old during a Send. The Send still uses it.
func TestTopicExpiresWhileAnotherIsFetched(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t", "u"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs()})
	if got := summary(sink.Send(t.Context(), batchOf("t", "a"))); got != "D" {
		t.Fatalf("the first Send: %s", got)
	}
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		kafka.AgeTopics(sink, time.Hour)
		return nil, nil, false
	})
	batch := append(batchOf("t", "a"), batchOf("u", "b")...)
	if got := summary(sink.Send(t.Context(), batch)); got != "DD" {
		t.Errorf("the second Send: %s", got)
	}
}

// TestKeyInSeveralPartitionsOfWhichOneFails: after a failed message, the later messages of its
// key for other partitions are unsent, even if nothing else is left to send. The queue of the last
// message comes before the queue of the message that blocks it.
func TestKeyInSeveralPartitionsOfWhichOneFails(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "t"))
	failing(cluster, 1, kerr.UnknownServerError)
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), PartitionHeader: "p"})
	batch := batchOf("t", "a", "b", "b", "a", "a")
	for i, partition := range []string{"2", "2", "0", "1", "0"} {
		batch[i].Headers = map[string]string{"p": partition}
	}
	if got := summary(sink.Send(t.Context(), batch)); got != "RRBBB" {
		t.Error(got)
	}
}
