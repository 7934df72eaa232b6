package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/settings"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// idempotent returns a new sink, like the sink of another process.
func idempotent(t testing.TB, options kafka.Options) *kafka.IdempotentSink {
	t.Helper()
	sink, err := kafka.NewIdempotent(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close(context.Background()) })
	return sink
}

// planned returns the messages with references. The test fails if a message gets none.
func planned(t testing.TB, sink *kafka.IdempotentSink, batch []sinks.Message) []sinks.Message {
	t.Helper()
	batch = slices.Clone(batch)
	batchRefs, outcomes := sink.Plan(t.Context(), batch)
	// A new broker assigns no producer id while it loads its coordinator. All other errors are returned, because callers
	// assert that the sink is available.
	loading := func() bool { return strings.Contains(outcomes[0].Detail, "Group Load In Progress") }
	for end := time.Now().Add(2 * time.Minute); loading() && time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		if err := sink.Open(t.Context()); err == nil {
			batchRefs, outcomes = sink.Plan(t.Context(), batch)
		}
	}
	for i := range batch {
		if len(batchRefs) != len(batch) || batchRefs[i] == (sinks.BatchRef{}) {
			t.Fatalf("message %d got no batchRef: %+v", i, outcomes[i])
		}
		batch[i].BatchRef = batchRefs[i]
	}
	return batch
}

// keys returns n keys, with repetitions after 40.
func keys(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("k%d", i%40)
	}
	return names
}

func wantSummary(t testing.TB, what string, got []sinks.Outcome, want string) {
	t.Helper()
	if len(want) == 1 {
		want = strings.Repeat(want, len(got))
	}
	if summary(got) != want {
		t.Errorf("%s: outcomes %s, want %s; the first is %+v", what, summary(got), want, got[0])
	}
}

// wantOnce checks that the log has each of the messages once, and no other messages.
func wantOnce(t testing.TB, addresses []string, topic string, batch []sinks.Message) {
	t.Helper()
	counts := map[string]int{}
	for _, r := range records(t, addresses, topic, len(batch)) {
		counts[asMessage(r).ID]++
	}
	if len(counts) != len(batch) {
		t.Errorf("%d messages are in the log, want %d", len(counts), len(batch))
	}
	for _, m := range batch {
		if counts[m.ID] != 1 {
			t.Errorf("message %s is in the log %d times", m.ID, counts[m.ID])
		}
	}
}

// planning is a sink whose Send calls Plan first, so that the conformance suite can use it.
type planning struct{ *kafka.IdempotentSink }

func (p planning) Renew(with sinks.Sink) { p.IdempotentSink.Renew(with.(planning).IdempotentSink) }

func (p planning) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	batchRefs, outcomes := p.Plan(ctx, batch)
	var sent []sinks.Message
	for i, m := range batch {
		if batchRefs != nil && batchRefs[i] != (sinks.BatchRef{}) {
			m.BatchRef = batchRefs[i]
			sent = append(sent, m)
		}
	}
	if len(sent) == 0 {
		return outcomes
	}
	answers := p.IdempotentSink.Send(ctx, sent)
	for i := range batch {
		if batchRefs[i] != (sinks.BatchRef{}) {
			outcomes[i], answers = answers[0], answers[1:]
		}
	}
	return outcomes
}

func (p planning) Limits() sinks.Limits { return sinks.Limits{Workers: 1} }

func TestIdempotentConformance(t *testing.T) {
	t.Parallel()
	addresses, at := []string{broker(t)}, logins(t)
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		options := kafka.Options{Brokers: []string{at.Get("login")}, SASL: "plain", Username: "rowrelay", Password: settings.Secret(at.Get("password"))}
		h := harness(t, addresses, newTopic(t, addresses, 6, "max.message.bytes=2000000"), options)
		plain := h.Sink.(*kafka.Sink)
		h.Sink = planning{kafka.Idempotent(plain)}
		h.Secrets = []string{at.Get("password")}
		return h
	})
}

// TestRepeatedBatchesAreRecognised: a process sends batches of another process again,
// completely or in part, in any order, several times. The log has each message once.
func TestRepeatedBatchesAreRecognised(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	for name, again := range map[string]func(all []sinks.Message) []sinks.Message{
		"whole":     func(all []sinks.Message) []sinks.Message { return all },
		"backwards": func(all []sinks.Message) []sinks.Message { all = slices.Clone(all); slices.Reverse(all); return all },
		"in part":   func(all []sinks.Message) []sinks.Message { return all[:len(all)/2] },
		"the first": func(all []sinks.Message) []sinks.Message { return all[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, addresses, 3)
			options := kafka.Options{Brokers: addresses}
			first, second := idempotent(t, options), idempotent(t, options)
			var all []sinks.Message
			for range 8 { // a broker keeps the sequences of a producer's last five batches
				batch := planned(t, first, batchOf(topic, keys(100)...))
				wantSummary(t, "the first time", first.Send(t.Context(), batch), "D")
				all = append(all, batch...)
			}
			if err := second.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				wantSummary(t, "again", second.Send(t.Context(), again(all)), "D")
			}
			more := planned(t, second, batchOf(topic, keys(100)...))
			wantSummary(t, "a new batch", second.Send(t.Context(), more), "D")
			wantSummary(t, "again by the first", first.Send(t.Context(), again(all)), "D")
			wantOnce(t, addresses, topic, append(all, more...))
		})
	}
}

// TestBatchThatWasNeverSent: another process gets a part of a batch that was planned
// and never sent, and finds out that it was not written. With the complete batch, it
// sends the batch. The broker recognises the batch when the first process sends it late.
func TestBatchThatWasNeverSent(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	first, second := idempotent(t, kafka.Options{Brokers: addresses}), idempotent(t, kafka.Options{Brokers: addresses})
	sent := planned(t, first, batchOf(topic, keys(20)...))
	wantSummary(t, "before", first.Send(t.Context(), sent), "D")
	batch := planned(t, first, batchOf(topic, keys(20)...))
	if err := second.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, "a part", second.Send(t.Context(), batch[3:7]), "B")
	wantSummary(t, "the whole", second.Send(t.Context(), batch), "D")
	wantSummary(t, "by its own sender", first.Send(t.Context(), batch), "D")
	wantOnce(t, addresses, topic, append(sent, batch...))
}

// TestAbandonedPlan: an abandoned plan leaves no gap in the sequences.
func TestAbandonedPlan(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 2)
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	batch := batchOf(topic, keys(30)...)
	wantSummary(t, "before", sink.Send(t.Context(), planned(t, sink, batch[:10])), "D")
	abandoned := planned(t, sink, batch[10:20])
	wantSummary(t, "after", sink.Send(t.Context(), planned(t, sink, batch[10:30])), "D")
	wantSummary(t, "a part of the abandoned plan", sink.Send(t.Context(), abandoned[:5]), "B")
	wantOnce(t, addresses, topic, batch)
}

// TestOverlappingPlans: plans overlap, and their Sends end in any order. The outcome
// of one plan doesn't affect the others, and the brokers recognise all batches.
func TestOverlappingPlans(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	first, second := idempotent(t, kafka.Options{Brokers: addresses}), idempotent(t, kafka.Options{Brokers: addresses})
	var all, never []sinks.Message
	for range 3 {
		one, other, last := planned(t, first, batchOf(topic, keys(30)...)), planned(t, first, batchOf(topic, keys(30)...)), planned(t, first, batchOf(topic, keys(30)...))
		var sends sync.WaitGroup
		for _, batch := range [][]sinks.Message{last, other} {
			sends.Go(func() { wantSummary(t, "one of several", first.Send(t.Context(), batch), "D") })
		}
		sends.Wait()
		all, never = append(append(all, other...), last...), append(never, one...)
	}
	if err := second.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, "a part of an unsent plan", second.Send(t.Context(), never[1:30]), "B")
	wantSummary(t, "the sent plans", second.Send(t.Context(), all), "D")
	wantSummary(t, "the unsent plan, late", first.Send(t.Context(), never), "D")
	wantOnce(t, addresses, topic, append(all, never...))
}

// TestProducersAreReused: a producer is used again when the broker has all batches
// of its plan, and not before.
func TestProducersAreReused(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	producer := func(batch []sinks.Message) string { return strings.Fields(batch[0].BatchRef.Batch)[2] }
	one, other := planned(t, sink, batchOf(topic, "a")), planned(t, sink, batchOf(topic, "b"))
	if producer(one) == producer(other) {
		t.Error("two unfinished plans have the same producer")
	}
	wantSummary(t, "the other", sink.Send(t.Context(), other), "D")
	if next := planned(t, sink, batchOf(topic, "c")); producer(next) != producer(other) {
		t.Error("the producer of a finished plan wasn't used again")
	}
}

// TestIdempotentSinkSendsAgainAfterALostAnswer: when the sink sends the batch again,
// the broker recognises it.
func TestIdempotentSinkSendsAgainAfterALostAnswer(t *testing.T) {
	t.Parallel()
	addresses, between := []string{broker(t)}, newLink()
	topic := newTopic(t, addresses, 2)
	sink := idempotent(t, kafka.Options{Brokers: addresses, Dial: between.dial, RequestTimeout: enough})
	batch := planned(t, sink, batchOf(topic, keys(50)...))
	between.loseAnswers(true)
	wantSummary(t, "without an answer", sink.Send(t.Context(), batch), "R")
	between.loseAnswers(false)
	wantSummary(t, "again", sink.Send(t.Context(), batch), "D")
	more := planned(t, sink, batchOf(topic, keys(50)...))
	wantSummary(t, "the next", sink.Send(t.Context(), more), "D")
	wantOnce(t, addresses, topic, append(batch, more...))
}

// TestIdempotentSinkIsolatesRefusedRecords: the sink rejects the records that the
// broker refuses, and delivers each of the others once.
func TestIdempotentSinkIsolatesRefusedRecords(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 2, "max.message.bytes=20000")
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	left := batchOf(topic, keys(60)...)
	left[17].Payload, left[41].Payload = make([]byte, 30000), make([]byte, 30000)
	var good []sinks.Message
	rejected := 0
	for round := 0; len(left) > 0; round++ {
		if round > 60 {
			t.Fatalf("%d messages are left after %d rounds", len(left), round)
		}
		batchRefs, outcomes := sink.Plan(t.Context(), left)
		var batch, next []sinks.Message
		for i, m := range left {
			if m.BatchRef = batchRefs[i]; m.BatchRef == (sinks.BatchRef{}) {
				wantSummary(t, "not planned", outcomes[i:i+1], "B")
				next = append(next, m)
			} else {
				batch = append(batch, m)
			}
		}
		for i, o := range sink.Send(t.Context(), batch) {
			switch o.Result {
			case sinks.Delivered:
				good = append(good, batch[i])
			case sinks.Reject:
				rejected++
			default:
				wantSummary(t, "sent", []sinks.Outcome{o}, "B")
				next = append(next, batch[i])
			}
		}
		left = next
	}
	if rejected != 2 {
		t.Errorf("%d messages were rejected, want the 2 that are too large", rejected)
	}
	wantOnce(t, addresses, topic, good)
}

// TestForgottenBatchesAreFoundInTheLog: if brokers may have forgotten a batch, the
// sink searches the log. A batch of another cluster counts as not written.
func TestForgottenBatchesAreFoundInTheLog(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic, other := newTopic(t, addresses, 1), newTopic(t, addresses, 1)
	sink := idempotent(t, kafka.Options{Brokers: addresses})
	second := forgetful(t, addresses, topic, other)
	before := planned(t, sink, batchOf(topic, keys(5)...))
	wantSummary(t, "before", sink.Send(t.Context(), before), "D")
	batch, never := planned(t, sink, batchOf(topic, keys(10)...)), batchOf(topic, keys(10)...)
	wantSummary(t, "the first time", sink.Send(t.Context(), batch), "D")
	old := func(batch []sinks.Message) []sinks.Message { return restamped(t, batch, "", -1, day) }
	wantSummary(t, "known by its id", sink.Send(t.Context(), restamped(t, batch, "", -1, day)), "D")
	wantSummary(t, "forgotten", second.Send(t.Context(), old(batch)), "D")
	wantSummary(t, "forgotten, a part", second.Send(t.Context(), old(batch)[2:3]), "D")
	wantSummary(t, "never sent", second.Send(t.Context(), old(planned(t, sink, never))), "B")
	wantSummary(t, "another cluster", sink.Send(t.Context(), restamped(t, batch[:1], "other", -1, 0)), "B")
	wantOnce(t, addresses, topic, append(before, batch...))
}

// TestResentBatchIsCheckedBeforeItIsRefused: a batch was written, and then the topic's limit was lowered. The broker refuses the
// repetition, because it checks sizes before it looks for duplicates. The batch must count as delivered nevertheless.
func TestResentBatchIsCheckedBeforeItIsRefused(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	for name, n := range map[string]int{"one record": 1, "several records": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, addresses, 1)
			options := kafka.Options{Brokers: addresses}
			first := idempotent(t, options)
			batch := batchOf(topic, keys(n)...)
			batch[0].Payload = make([]byte, 30000)
			batch = planned(t, first, batch)
			wantSummary(t, "before", first.Send(t.Context(), batch), "D")
			limit(t, addresses, topic, 20000)
			probe := batchOf(topic, "")
			probe[0].Payload = batch[0].Payload
			all, end := batch, time.Now().Add(patience)
			for plain := newSink(t, options); summary(plain.Send(t.Context(), probe)) != "X"; { // until the leader applies the limit
				all = append(all, probe[0])
				if time.Now().After(end) {
					t.Fatal("the topic refuses nothing")
				}
				probe[0].ID += "0"
			}
			second := opened(t, options)
			wantSummary(t, "again", second.Send(t.Context(), batch), "D")
			wantOnce(t, addresses, topic, all)
		})
	}
}

// limit sets a topic's max.message.bytes.
func limit(t testing.TB, addresses []string, topic string, size int) {
	t.Helper()
	value := strconv.Itoa(size)
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "max.message.bytes", &value
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName, resource.Configs = kmsg.ConfigResourceTypeTopic, topic, append(resource.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(t.Context(), client(t, addresses))
	if err == nil {
		err = kerr.ErrorForCode(answer.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func restamped(t testing.TB, batch []sinks.Message, cluster string, producer int64, age time.Duration) []sinks.Message {
	t.Helper()
	batch = slices.Clone(batch)
	for i := range batch {
		name, err := kafka.Restamp(batch[i].BatchRef.Batch, cluster, producer, age)
		if err != nil {
			t.Fatal(err)
		}
		batch[i].BatchRef.Batch = name
	}
	return batch
}

// TestBrokerErrorsToIdempotentSink: a broker that answers with an error may
// nevertheless have the batch, so the sink asks for the producer's last sequence. If
// perhaps only the leader has the batch, it is sent again until all replicas have it.
func TestBrokerErrorsToIdempotentSink(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	comeTo := describing(cluster)
	sink := idempotent(t, kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: enough})
	first := planned(t, sink, batchOf("t", "a", "b"))
	failing(cluster, 1, kerr.UnknownServerError)
	got := sink.Send(t.Context(), first)
	if wantSummary(t, "not written", got, "R"); got[0].Reason != sinks.ReasonServerError {
		t.Errorf("not written: %+v", got[0])
	}
	second := planned(t, sink, first)
	wantSummary(t, "written", sink.Send(t.Context(), second), "D")
	failing(cluster, 1, kerr.UnknownServerError)
	comeTo(second, 1)
	got = sink.Send(t.Context(), second)
	if wantSummary(t, "perhaps written only by the leader", got, "R"); got[0].Reason != sinks.ReasonUnknown {
		t.Errorf("perhaps written only by the leader: %+v", got[0])
	}
	wantSummary(t, "again", sink.Send(t.Context(), second), "D")
	third := planned(t, sink, batchOf("t", "a", "b"))
	wantSummary(t, "the next", sink.Send(t.Context(), third), "D")
	failing(cluster, 1, kerr.UnknownServerError)
	comeTo(second, 3)
	wantSummary(t, "written and acknowledged", sink.Send(t.Context(), second), "D")
	wantOnce(t, cluster.ListenAddrs(), "t", append(second, third...))
}

// describing makes the cluster answer DescribeProducers requests like a real broker,
// with the last sequence of the producer of a batch.
func describing(cluster *kfake.Cluster) (comeTo func(batch []sinks.Message, last int32)) {
	var id int64
	var sequence int32
	cluster.ControlKey(int16(kmsg.DescribeProducers), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := request.(*kmsg.DescribeProducersRequest).Topics[0]
		active := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		active.ProducerID, active.LastSequence = id, sequence
		partition := kmsg.NewDescribeProducersResponseTopicPartition()
		partition.Partition, partition.ActiveProducers = asked.Partitions[0], append(partition.ActiveProducers, active)
		topic := kmsg.NewDescribeProducersResponseTopic()
		topic.Topic, topic.Partitions = asked.Topic, append(topic.Partitions, partition)
		answer := request.ResponseKind().(*kmsg.DescribeProducersResponse)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	return func(batch []sinks.Message, last int32) {
		id, _ = strconv.ParseInt(strings.Fields(batch[0].BatchRef.Batch)[2], 10, 64)
		sequence = last
	}
}
