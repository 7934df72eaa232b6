package relay_test

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// drainOnce drains the table with a route for the topic "known" only.
func drainOnce(t *testing.T, db *memstore.DB, alarms *topicAlarm) error {
	t.Helper()
	r, err := relay.New(db.Store(), relay.Options{Drain: true, Observer: alarms,
		Sinks: to(&recorder{}), Routes: []relay.Route{{Topic: "known", Sink: "main"}}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Run(t.Context())
}

// Each drain reports that messages without a route are left, even if only the marks show it that such messages exist. When the
// messages have been deleted, drains report nothing.
func TestEachDrainReportsUnroutedMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		write(db, "known", "a", 10)
		write(db, "lost", "b", 1)
		write(db, "known", "b", 300)
		write(db, "stray", "", 1)
		write(db, "known", "c", 10)
		for n := range 3 {
			alarms := &topicAlarm{topics: map[string]bool{}}
			err := drainOnce(t, db, alarms)
			if err == nil || !strings.Contains(err.Error(), "lost, stray") {
				t.Errorf("drain %d: %v, want an error that names both topics", n+1, err)
			}
			if !alarms.topics["lost"] || !alarms.topics["stray"] {
				t.Errorf("drain %d reported %v, want both topics", n+1, alarms.topics)
			}
			write(db, "known", "b", 5)
		}
		takeAway(t, db, "lost", "stray")
		for range 2 {
			if err := drainOnce(t, db, &topicAlarm{topics: map[string]bool{}}); err != nil {
				t.Errorf("a drain after the messages were deleted: %v", err)
			}
		}
	})
}

// A restarted relay reports the topics of messages without a route as long as these messages wait.
func TestRestartedRelayReportsUnroutedMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		write(db, "lost", "b", 1)
		write(db, "known", "b", 3)
		options := relay.Options{Sinks: to(&recorder{}), Routes: []relay.Route{{Topic: "known", Sink: "main"}}}
		_, stop := start(t, db.Store(), options)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		alarms := &countedAlarm{}
		options.Observer = alarms
		_, stop = start(t, db.Store(), options)
		time.Sleep(10*time.Minute + time.Second)
		told := alarms.times.Load()
		if told < 9 {
			t.Errorf("%d alarms in ten minutes", told)
		}
		takeAway(t, db, "lost")
		time.Sleep(3 * time.Minute)
		told = alarms.times.Load()
		time.Sleep(10 * time.Minute)
		if alarms.times.Load() != told {
			t.Errorf("%d alarms after the message was deleted", alarms.times.Load()-told)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A sink may have no destination for a topic, for example because a topic doesn't exist in Kafka. The log then has the sink's
// detail, and doesn't report a missing route.
func TestTopicWithoutADestinationIsLoggedWithItsDetail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink, log := memstore.New(), &recorder{}, &strings.Builder{}
		write(db, "orders", "a", 1)
		sink.answer = func(sinks.Message) sinks.Outcome {
			return sinks.Postpone(sinks.ReasonUnroutable, "the topic shop.orders does not exist", time.Second)
		}
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink), Logger: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		if !strings.Contains(text, `detail="the topic shop.orders does not exist"`) || strings.Contains(text, "route;") {
			t.Errorf("the log is\n%s", text)
		}
	})
}

type countedAlarm struct {
	relay.NoObserver
	times atomic.Int32
}

func (a *countedAlarm) Unrouted(string) { a.times.Add(1) }

// takeAway deletes the messages of some topics from the table, as an operator may do by SQL.
func takeAway(t *testing.T, db *memstore.DB, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		if n := db.Delete(func(row storage.Row) bool { return row.Message.Topic == topic }); n != 1 {
			t.Fatalf("%d messages of topic %s", n, topic)
		}
	}
}
