package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// open returns a letter for each outcome: O if the outcome of the message is unknown, otherwise the
// letter of summary.
func open(outcomes []sinks.Outcome) string {
	letters := []byte(summary(outcomes))
	for i, o := range outcomes {
		if sinks.IsOpen(o) && o.Result != sinks.Unavailable {
			letters[i] = 'O'
		}
	}
	return string(letters)
}

// TestMissingPartitionHasNoBatch: a relay that takes over finds planned batches of a topic that was
// deleted, or created again with fewer partitions. The sink reports that these batches were not
// written, and stays available.
func TestMissingPartitionHasNoBatch(t *testing.T) {
	for name, partitions := range map[string]int32{"deleted": 0, "with fewer partitions": 1} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, addresses []string) {
				healthy, other := newTopic(t, addresses, 2), newTopic(t, addresses, 5)
				options := kafka.Options{Brokers: addresses, LeaderTimeout: 100 * time.Millisecond}
				first := idempotent(t, options)
				sent := planned(t, first, mixed(40, healthy, other))
				var whole, part []sinks.Message // batches of partitions that will be deleted
				for _, m := range sent {
					if m.Topic == other && kafka.PartitionOf(m.Key, 5) == 4 {
						whole = append(whole, m)
					}
					if m.Topic == other && kafka.PartitionOf(m.Key, 5) == 3 {
						part = append(part, m)
					}
				}
				if len(whole) == 0 || len(part) < 2 {
					t.Fatal("the keys don't reach the partitions")
				}
				part = part[1:]
				wantSummary(t, "the relay that dies", first.Send(t.Context(), sent), "D")
				deleteTopic(t, addresses, other)
				gone(t, addresses, other)
				if partitions > 0 {
					createAgain(t, addresses, other, partitions)
				}
				second := opened(t, options)
				if got := open(second.Send(t.Context(), whole)); strings.Trim(got, "P") != "" {
					t.Errorf("a whole batch: %s, want it postponed", got)
				}
				if got := open(second.Send(t.Context(), part)); strings.Trim(got, "B") != "" {
					t.Errorf("a part of a batch: %s, want it to be planned again", got)
				}
				more := planned(t, second, mixed(6, healthy, healthy))
				wantSummary(t, "of the other topic", second.Send(t.Context(), more), "D")
				if partitions == 0 {
					_, outcomes := second.Plan(t.Context(), mixed(2, other, other))
					wantSummary(t, "a plan for the topic", outcomes, "P")
				}
			})
		})
	}
}

// TestUnknownOutcomesAffectOnlyTheirPartition: while a partition accepts nothing, its messages that may have been written
// stay open, its other messages are postponed, and the sink stays available.
func TestUnknownOutcomesAffectOnlyTheirPartition(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "healthy", "other"))
	down := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		select {
		case <-down:
			if produce.Topics[0].Topic == "other" {
				return produced(produce, kerr.NotEnoughReplicas), nil, true
			}
		default:
		}
		return nil, nil, false
	})
	options := kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: 50 * time.Millisecond}
	first, second := idempotent(t, options), idempotent(t, options)
	before := planned(t, first, mixed(6, "healthy", "other"))
	wantSummary(t, "the relay that dies", first.Send(t.Context(), before), "D")
	if err := second.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh := planned(t, second, mixed(6, "healthy", "other"))
	close(down)
	if got := open(second.Send(t.Context(), before)); got != "DODODO" {
		t.Errorf("what another relay has sent: %s", got)
	}
	if got := open(second.Send(t.Context(), fresh)); got != "DPDPDP" {
		t.Errorf("what was never sent: %s", got)
	}
	batchRefs, outcomes := second.Plan(t.Context(), mixed(6, "healthy", "other"))
	for i := range batchRefs {
		if planned := batchRefs[i] != (sinks.BatchRef{}); planned != (i%2 == 0) {
			t.Errorf("message %d is planned: %t, %+v", i, planned, outcomes[i])
		}
	}
}

// TestLostAnswersHoldUpOnlyTheirPartition: the answers of one partition are lost. A relay delivers all other messages.
// In the end, each message was written once.
func TestLostAnswersHoldUpOnlyTheirPartition(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "healthy", "other"))
	lost := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		select {
		case <-lost:
		default:
			if produce.Topics[0].Topic == "other" {
				return produced(produce, kerr.RequestTimedOut), nil, true
			}
		}
		return nil, nil, false
	})
	db, healthy, all := memstore.New(), make(chan struct{}), make(chan struct{})
	for i := range 300 {
		db.Write(outbox.Message{Topic: []string{"other", "healthy", "healthy"}[i%3], Key: fmt.Sprint("k", i)})
	}
	watch := &marks{at: map[int32]chan struct{}{200: healthy, 300: all}}
	sink := idempotent(t, kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: 50 * time.Millisecond})
	r, err := relay.New(db.Store(), relay.Options{Logger: slog.New(slog.DiscardHandler), Observer: watch, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 20}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for _, event := range []chan struct{}{healthy, all} {
		select {
		case <-event:
		case <-ctx.Done():
			t.Fatal("the messages are not delivered")
		}
		if event == healthy {
			close(lost)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for topic, want := range map[string]int{"healthy": 200, "other": 100} {
		counts := map[string]int{}
		for _, r := range records(t, cluster.ListenAddrs(), topic, want) {
			counts[asMessage(r).ID]++
		}
		if len(counts) != want {
			t.Errorf("%d messages are in %s, want %d", len(counts), topic, want)
		}
	}
}

// marks closes channels when given numbers of messages were delivered.
type marks struct {
	relay.NoObserver
	delivered int32
	at        map[int32]chan struct{} // by number of delivered messages
}

func (m *marks) Delivered(string, string, time.Duration) {
	m.delivered++ // no lock: only the relay's loop calls it
	if reached := m.at[m.delivered]; reached != nil {
		close(reached)
	}
}

// TestUnknownOutcomesOfADeadRelayHoldUpOnlyTheirTopic: a relay finds batches of a dead relay, and the cluster can't tell whether
// they were written. Messages of another topic are delivered, even before anything else was.
func TestUnknownOutcomesOfADeadRelayHoldUpOnlyTheirTopic(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key     int16
		problem *kerr.Error
		part    bool          // a row of each batch is missing
		age     time.Duration // of the batches
	}{
		"too few replicas":               {int16(kmsg.Produce), kerr.NotEnoughReplicas, false, 0},
		"no right to write":              {int16(kmsg.Produce), kerr.TopicAuthorizationFailed, false, 0},
		"the producers can't be listed":  {int16(kmsg.DescribeProducers), kerr.NotLeaderForPartition, true, 0},
		"no right to list the producers": {int16(kmsg.DescribeProducers), kerr.TopicAuthorizationFailed, true, 0},
		"the log can't be searched":      {int16(kmsg.Fetch), kerr.KafkaStorageError, true, day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, kfake.SeedTopics(1, "healthy", "other"))
			options := kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: 50 * time.Millisecond}
			first := idempotent(t, options)
			before := planned(t, first, mixed(6, "other", "other"))
			wantSummary(t, "the relay that dies", first.Send(t.Context(), before), "D")
			cluster.ControlKey(test.key, func(request kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				answer := refused(request, "other", test.problem)
				return answer, nil, answer != nil
			})
			describing(cluster) // answers requests that are not refused
			if test.part {
				before = before[1:]
			}
			second := opened(t, options)
			for range 3 {
				if got := open(second.Send(t.Context(), restamped(t, before, "", -1, test.age))); strings.Trim(got, "O") != "" {
					t.Errorf("the dead relay's batches: %s, want them open and the sink available", got)
				}
			}
			wantSummary(t, "the other topic", second.Send(t.Context(), planned(t, second, mixed(3, "healthy", "healthy"))), "D")
		})
	}
}

// TestTakeoverWhileAPartitionFails: a relay dies after it has written batches and before it settles them. The relay that takes over
// can't reach that partition, but delivers to another topic. When the partition works again, each message is written once.
func TestTakeoverWhileAPartitionFails(t *testing.T) {
	t.Parallel()
	for name, problem := range map[string]*kerr.Error{"too few replicas": kerr.NotEnoughReplicas, "no right to write": kerr.TopicAuthorizationFailed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, kfake.SeedTopics(1, "healthy", "other"))
			db, ahead := memstore.New(), atomic.Int64{}
			db.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			run := func(store *memstore.Store, watch relay.Observer) (r *relay.Relay, stop func() error) {
				sink := idempotent(t, kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: 50 * time.Millisecond})
				r, err := relay.New(store, relay.Options{Logger: slog.New(slog.DiscardHandler), Observer: watch, DrainTimeout: time.Millisecond,
					Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, BreakerBackoff: relay.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}}}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				return r, func() error { cancel(); return <-done }
			}
			write := func(topic string) {
				for i := range 20 {
					db.Write(outbox.Message{Topic: topic, Key: fmt.Sprint(topic, i)})
				}
			}
			reached := func(event chan struct{}, what string) {
				t.Helper()
				select {
				case <-event:
				case <-time.After(2 * time.Minute):
					t.Fatal(what)
				}
			}

			write("other")
			store, dies := db.Store(), make(chan struct{})
			die := sync.OnceFunc(func() { close(dies) })
			store.Hooks = memstore.Hooks{Fail: func(_ context.Context, op memstore.Op) error {
				if op == memstore.OpSettle {
					die()
				}
				select {
				case <-dies:
					return errors.New("the process is dead")
				default:
					return nil
				}
			}}
			first, stop := run(store, relay.NoObserver{})
			reached(dies, "nothing is settled")
			first.Abort()
			_ = stop()
			ahead.Store(int64(time.Hour)) // the dead relay's leases expire

			ends := make(chan struct{})
			cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				select {
				case <-ends:
					return nil, nil, false
				default:
					answer := refused(request, "other", problem)
					return answer, nil, answer != nil
				}
			})
			write("healthy")
			watch := &marks{at: map[int32]chan struct{}{20: make(chan struct{}), 40: make(chan struct{})}}
			_, stop = run(db.Store(), watch)
			reached(watch.at[20], "the other topic's messages are not delivered")
			close(ends)
			reached(watch.at[40], "not all messages are delivered")
			if err := stop(); err != nil {
				t.Error(err)
			}
			for _, topic := range []string{"healthy", "other"} {
				if got := records(t, cluster.ListenAddrs(), topic, 20); len(got) != 20 {
					t.Errorf("%s has %d records, want 20", topic, len(got))
				}
			}
		})
	}
}

// refused returns an answer with an error for partition 0 of a topic, or nil if the request is for another topic.
func refused(request kmsg.Request, of string, problem *kerr.Error) kmsg.Response {
	switch answer := request.ResponseKind().(type) {
	case *kmsg.ProduceResponse:
		if asked := request.(*kmsg.ProduceRequest); asked.Topics[0].Topic == of {
			return produced(asked, problem)
		}
	case *kmsg.ListOffsetsResponse:
		if asked := request.(*kmsg.ListOffsetsRequest); asked.Topics[0].Topic == of {
			topic, partition := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
			topic.Topic, partition.ErrorCode = of, problem.Code
			topic.Partitions = append(topic.Partitions, partition)
			answer.Topics = append(answer.Topics, topic)
			return answer
		}
	case *kmsg.DescribeProducersResponse:
		if asked := request.(*kmsg.DescribeProducersRequest); asked.Topics[0].Topic == of {
			topic, partition := kmsg.NewDescribeProducersResponseTopic(), kmsg.NewDescribeProducersResponseTopicPartition()
			topic.Topic, partition.ErrorCode = of, problem.Code
			topic.Partitions = append(topic.Partitions, partition)
			answer.Topics = append(answer.Topics, topic)
			return answer
		}
	case *kmsg.FetchResponse:
		if asked := request.(*kmsg.FetchRequest); asked.Topics[0].Topic == of {
			topic, partition := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
			topic.Topic, partition.ErrorCode = of, problem.Code
			topic.Partitions = append(topic.Partitions, partition)
			answer.Topics = append(answer.Topics, topic)
			return answer
		}
	}
	return nil
}

// TestPlanFindsTheNewLeader: a leader moves before a plan. The plan finds the new leader, although the cached metadata is recent.
func TestPlanFindsTheNewLeader(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "healthy", "other"))
	sink := idempotent(t, kafka.Options{Brokers: cluster.ListenAddrs()})
	wantSummary(t, "before", sink.Send(t.Context(), planned(t, sink, mixed(6, "healthy", "other"))), "D")
	kafka.AgeEnds(sink, 2*time.Minute)
	from := cluster.LeaderFor("other", 0)
	if err := cluster.MoveTopicPartition("other", 0, 1-from); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, "after", sink.Send(t.Context(), planned(t, sink, mixed(6, "healthy", "other"))), "D")
}

// TestRefusedLoginMakesTheSinkUnavailable: the broker refuses the login of a Send that only has to find out whether a batch of a dead
// relay was written. The sink must be unavailable, because only then does the relay open it again, with a renewed password.
func TestRefusedLoginMakesTheSinkUnavailable(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "rowrelay", "s3cret"))
	options := kafka.Options{Brokers: cluster.ListenAddrs(), SASL: "plain", Username: "rowrelay", Password: "s3cret", LeaderTimeout: 50 * time.Millisecond}
	first, second := idempotent(t, options), opened(t, options)
	batch := planned(t, first, batchOf("t", "a", "b"))
	wantSummary(t, "the relay that dies", first.Send(t.Context(), batch), "D")
	wantSummary(t, "another batch", second.Send(t.Context(), planned(t, second, batchOf("t", "c"))), "D") // caches the topic
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return answer, nil, true
	})
	kafka.Age(second.Sink, time.Hour) // closes its connections
	got := second.Send(t.Context(), batch[1:])
	if wantSummary(t, "a part of the batch", got, "U"); got[0].Reason != sinks.ReasonAuth {
		t.Errorf("got %+v", got[0])
	}
}

// TestFirstMessagesForAFailingPartition: the first messages of a new relay are for a failing partition. The relay delivers messages
// that are written later for another topic, also if the first messages fill its buffer.
func TestFirstMessagesForAFailingPartition(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		idempotent bool
		claim      storage.Claim
		key        int16
	}{
		"plain":      {false, storage.ByLanes, int16(kmsg.Produce)},
		"by rows":    {false, storage.ByRows, int16(kmsg.Produce)},
		"idempotent": {true, storage.ByLanes, int16(kmsg.Produce)},
		"idempotent, the end of the log is unknown": {true, storage.ByLanes, int16(kmsg.ListOffsets)},
	} {
		for _, buffer := range []int{200, 20} {
			t.Run(fmt.Sprint(name, ", buffer ", buffer), func(t *testing.T) {
				t.Parallel()
				cluster, inTrouble := fake(t, kfake.SeedTopics(1, "healthy", "other")), make(chan struct{})
				met := sync.OnceFunc(func() { close(inTrouble) })
				cluster.ControlKey(test.key, func(request kmsg.Request) (kmsg.Response, error, bool) {
					cluster.KeepControl()
					answer := refused(request, "other", kerr.NotLeaderForPartition)
					if answer != nil {
						met()
					}
					return answer, nil, answer != nil
				})
				options := kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: 50 * time.Millisecond}
				var sink sinks.Sink = newSink(t, options)
				if test.idempotent {
					sink = idempotent(t, options)
				}
				db := memstore.New()
				write := func(topic string) {
					for i := range 40 {
						db.Write(outbox.Message{Topic: topic, Key: fmt.Sprint(topic, i)})
					}
				}
				write("other")
				healthy := make(chan struct{})
				r, err := relay.New(db.Store(), relay.Options{Claim: test.claim, Logger: slog.New(slog.DiscardHandler), Observer: &marks{at: map[int32]chan struct{}{40: healthy}},
					Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 5, Workers: 1, Buffer: buffer, BreakerBackoff: relay.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}}}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				for _, event := range []chan struct{}{inTrouble, healthy} {
					select {
					case <-event:
					case <-time.After(2 * time.Minute):
						t.Error("the other topic's messages are not delivered")
					}
					if event == inTrouble {
						write("healthy")
					}
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestClusterOutageWritesNothingToTheTable: the brokers answer, but no partition accepts a record. The sink is unavailable, and the
// relay writes nothing to the table even if its buffer is full.
func TestClusterOutageWritesNothingToTheTable(t *testing.T) {
	t.Parallel()
	for _, exact := range []bool{false, true} {
		t.Run(fmt.Sprint("idempotent ", exact), func(t *testing.T) {
			t.Parallel()
			cluster, refusals, enough := fake(t, kfake.SeedTopics(1, "one", "other")), atomic.Int32{}, make(chan struct{})
			cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				if refusals.Add(1) == 40 {
					close(enough)
				}
				return produced(request.(*kmsg.ProduceRequest), kerr.NotEnoughReplicas), nil, true
			})
			options := kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: 50 * time.Millisecond}
			var sink sinks.Sink = newSink(t, options)
			if exact {
				sink = idempotent(t, options)
			}
			db := memstore.New()
			for i := range 100 {
				db.Write(outbox.Message{Topic: []string{"one", "other"}[i%2], Key: fmt.Sprint("k", i)})
			}
			r, err := relay.New(db.Store(), relay.Options{Logger: slog.New(slog.DiscardHandler),
				Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 10, Buffer: 30, BreakerBackoff: relay.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			select {
			case <-enough:
			case <-time.After(2 * time.Minute):
				t.Error("the sink has not tried 40 requests")
			}
			if status, err := db.Store().Status(t.Context()); err != nil || status.Counts[storage.StatePending] != 100 {
				t.Errorf("%v, %v; want all pending", status.Counts, err)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
