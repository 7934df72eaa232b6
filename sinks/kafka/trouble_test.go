package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
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

// onBoth runs a test with a fake broker and with a real one.
func onBoth(t *testing.T, test func(t *testing.T, addresses []string)) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(t, fake(t).ListenAddrs())
	})
	t.Run("broker", func(t *testing.T) {
		t.Parallel()
		test(t, []string{broker(t)})
	})
}

// mixed returns messages that alternate between two topics. Each has its own key.
func mixed(n int, healthy, other string) []sinks.Message {
	batch := batchOf(healthy, make([]string, n)...)
	for i := range batch {
		batch[i].Key, batch[i].CreatedAt = fmt.Sprint("k", i), time.Now()
		if i%2 == 1 {
			batch[i].Topic = other
		}
	}
	return batch
}

// holdsUpOnly sends batches in which every other message goes to a failing topic. It checks that
// these messages have the outcome want, that the others are delivered, and that the sink is never
// unavailable.
func holdsUpOnly(t *testing.T, sink sinks.Sink, healthy, other, want string) {
	t.Helper()
	for range 3 {
		wantSummary(t, "both topics", sink.Send(t.Context(), mixed(6, healthy, other)), strings.Repeat("D"+want, 3))
		wantSummary(t, "the failing topic", sink.Send(t.Context(), mixed(2, other, other)), want)
		wantSummary(t, "the healthy topic", sink.Send(t.Context(), mixed(2, healthy, healthy)), "D")
	}
}

func TestMissingTopicHoldsUpNoOther(t *testing.T) {
	onBoth(t, func(t *testing.T, addresses []string) {
		healthy := newTopic(t, addresses, 2)
		sink := newSink(t, kafka.Options{Brokers: addresses})
		wantSummary(t, "before anything was delivered", sink.Send(t.Context(), mixed(2, healthy+"x", healthy+"x")), "P")
		holdsUpOnly(t, sink, healthy, healthy+"x", "P")
	})
}

func TestTopicThatCannotBeCreatedHoldsUpNoOther(t *testing.T) {
	t.Run("a name that collides", func(t *testing.T) {
		t.Parallel()
		addresses := []string{broker(t)}
		healthy := newTopic(t, addresses, 2)
		sink := newSink(t, kafka.Options{Brokers: addresses, CreateTopics: true})
		taken, colliding := healthy+".cpu", healthy+"_cpu"
		t.Cleanup(func() { deleteTopic(t, addresses, taken) })
		wantSummary(t, "the first of the two names", sink.Send(t.Context(), mixed(2, taken, taken)), "D")
		holdsUpOnly(t, sink, healthy, colliding, "X")
		if o := sink.Send(t.Context(), mixed(1, colliding, colliding))[0]; o.Reason != sinks.ReasonInvalid || !strings.Contains(o.Detail, colliding) {
			t.Errorf("got %+v", o)
		}
	})
	for park, want := range map[bool]string{false: "P", true: "X"} {
		t.Run(fmt.Sprint("too many replicas, park ", park), func(t *testing.T) {
			t.Parallel()
			addresses := []string{broker(t)}
			healthy := newTopic(t, addresses, 2)
			sink := newSink(t, kafka.Options{Brokers: addresses, CreateTopics: true, CreateReplicas: 3, ParkUnknownTopics: park})
			holdsUpOnly(t, sink, healthy, healthy+"-new", want)
			if o := sink.Send(t.Context(), mixed(1, healthy+"-new", ""))[0]; !strings.Contains(strings.ToLower(o.Detail), "replica") {
				t.Errorf("the outcome doesn't say why: %+v", o)
			}
		})
	}
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		cluster := fake(t, kfake.SeedTopics(2, "healthy"))
		var asked atomic.Int32
		cluster.ControlKey(int16(kmsg.CreateTopics), func(request kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			asked.Add(1)
			answer := request.ResponseKind().(*kmsg.CreateTopicsResponse)
			for _, wanted := range request.(*kmsg.CreateTopicsRequest).Topics {
				refused := kmsg.NewCreateTopicsResponseTopic()
				refused.Topic, refused.ErrorCode = wanted.Topic, kerr.PolicyViolation.Code
				answer.Topics = append(answer.Topics, refused)
			}
			return answer, nil, true
		})
		sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), CreateTopics: true})
		holdsUpOnly(t, sink, "healthy", "new", "P")
		if n := asked.Load(); n > 3 {
			t.Errorf("the sink tried to create the topic %d times in 9 sends", n)
		}
	})
}

// TestFailingPartitionHoldsUpNoOther: a partition has too few in-sync replicas. This can't happen with a single real broker.
func TestFailingPartitionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "healthy", "other"))
	var refused atomic.Int32
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if produce := request.(*kmsg.ProduceRequest); produce.Topics[0].Topic == "other" {
			refused.Add(1)
			return produced(produce, kerr.NotEnoughReplicas), nil, true
		}
		return nil, nil, false
	})
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), LeaderTimeout: 50 * time.Millisecond})
	wantSummary(t, "before anything was delivered", sink.Send(t.Context(), mixed(2, "other", "other")), "U")
	asked := refused.Load()
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, "again", sink.Send(t.Context(), mixed(3, "other", "other")), "UPP")
	holdsUpOnly(t, sink, "healthy", "other", "P")
	if n := refused.Load() - asked; n > 8 {
		t.Errorf("the sink sent %d requests to the partition in 10 sends", n)
	}
}

// TestDeletedTopicHoldsUpNoOther deletes a topic, then creates it again with fewer partitions.
func TestDeletedTopicHoldsUpNoOther(t *testing.T) {
	onBoth(t, func(t *testing.T, addresses []string) {
		healthy, other := newTopic(t, addresses, 2), newTopic(t, addresses, 5)
		sink := newSink(t, kafka.Options{Brokers: addresses, LeaderTimeout: 50 * time.Millisecond})
		wantSummary(t, "before", sink.Send(t.Context(), mixed(40, healthy, other)), "D")
		deleteTopic(t, addresses, other)
		gone(t, addresses, other)
		holdsUpOnly(t, sink, healthy, other, "P")
		createAgain(t, addresses, other, 1)
		for range 1000 { // until the sink fetches the topic again
			outcomes := sink.Send(t.Context(), mixed(40, healthy, other))
			if strings.Contains(summary(outcomes), "U") {
				t.Fatalf("the topic has fewer partitions: %s", summary(outcomes))
			}
			if !strings.Contains(summary(outcomes), "P") {
				return
			}
			kafka.Rest(sink)
		}
		t.Error("the topic exists again, but its messages are still postponed")
	})
}

// TestMisspeltTopicAmongOthers: in a relay, a misspelt topic does not make the sink unavailable.
func TestMisspeltTopicAmongOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, addresses []string) {
		healthy := newTopic(t, addresses, 4)
		db := memstore.New()
		for i := range 400 { // the misspelt ones first
			db.Write(outbox.Message{Topic: healthy + "x", Key: fmt.Sprint("x", i)})
		}
		for i := range 400 {
			db.Write(outbox.Message{Topic: healthy, Key: fmt.Sprint("k", i)})
		}
		sink := &counted{Sink: newSink(t, kafka.Options{Brokers: addresses})}
		watch := &deliveries{all: make(chan struct{}), left: 400}
		r, err := relay.New(db.Store(), relay.Options{Logger: slog.New(slog.DiscardHandler), Observer: watch, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 50}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		select {
		case <-watch.all:
		case <-ctx.Done():
			t.Error("not all of the healthy topic's messages are delivered")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := sink.opens.Load(); n != 1 {
			t.Errorf("the sink was unavailable: it was opened %d times", n)
		}
		status, err := db.Store().Status(t.Context())
		if err != nil || status.Counts[storage.StateError] > 0 {
			t.Errorf("%v are parked, %v", status.Counts, err)
		}
	})
}

// counted counts how often a sink is opened.
type counted struct {
	*kafka.Sink
	opens atomic.Int32
}

func (c *counted) Open(ctx context.Context) error {
	c.opens.Add(1)
	return c.Sink.Open(ctx)
}

// deliveries closes all when every message is delivered.
type deliveries struct {
	relay.NoObserver
	left int32
	all  chan struct{}
}

func (d *deliveries) Delivered(string, string, time.Duration) {
	if atomic.AddInt32(&d.left, -1) == 0 {
		close(d.all)
	}
}

// gone waits until the brokers no longer know a topic.
func gone(t testing.TB, addresses []string, topic string) {
	t.Helper()
	c := client(t, addresses)
	for isThere(t, c, topic, 1) {
		c.ForceMetadataRefresh()
	}
}

// createAgain creates a topic that was deleted.
func createAgain(t testing.TB, addresses []string, topic string, partitions int32) {
	t.Helper()
	c := client(t, addresses)
	for !isThere(t, c, topic, partitions) {
		wanted := kmsg.NewCreateTopicsRequestTopic()
		wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, partitions, 1
		request := kmsg.NewPtrCreateTopicsRequest()
		request.Topics = append(request.Topics, wanted)
		if _, err := request.RequestWith(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.ForceMetadataRefresh()
	}
}
