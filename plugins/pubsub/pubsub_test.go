package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	for name, config := range map[string]map[string]string{
		"one topic":        {"topic": "sinktest"},
		"topics":           {},
		"without ordering": {"ordering": "false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(t testing.TB) sinktest.Harness {
				s := newServer(t, "sinktest")
				h := sinktest.Harness{Sink: pluginSink(t, s, config), Received: s.received, Break: s.stop, Repair: s.start, Stall: s.stall}
				if config["ordering"] == "" { // with ordering, each request has the messages of one key, so that the server can fail on one message only
					h.Answer = s.answer
				}
				if config["topic"] == "" {
					h.Astray = func(m *sinks.Message) { m.Topic = "no-such-topic" }
				}
				return h
			})
		})
	}
}

func TestKind(t *testing.T) {
	t.Parallel()
	sinktest.Kind(t, kind(),
		map[string]any{"project": "shop"},
		map[string]any{"project": "shop", "topic": "orders", "ordering": false, "endpoint": "europe-west1-pubsub.googleapis.com:443", "concurrency": 8},
	)
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	registry, err := sinks.NewRegistry(kind())
	check(t, err)
	for name, test := range map[string]struct {
		value any
		want  string
	}{
		"project":  {"projects/shop", "setting project: must be a project's id"},
		"topic":    {"orders paid", "setting topic: is not a topic's id"},
		"endpoint": {"https://europe-west1-pubsub.googleapis.com", "setting endpoint: must be a host and a port"},
	} {
		config := map[string]any{"project": "shop"}
		config[name] = test.value
		if _, err := registry.Make("pubsub", config); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// opened returns the sink itself, not the plug-in.
func opened(t *testing.T, s *server, config map[string]any) *sink {
	t.Helper()
	t.Setenv("PUBSUB_EMULATOR_HOST", s.address)
	config["project"] = project
	values, err := kind().Parse(config)
	check(t, err)
	made, err := newSink(values)
	check(t, err)
	t.Cleanup(func() { check(t, made.Close(context.Background())) })
	check(t, made.Open(t.Context()))
	return made.(*sink)
}

func batchOf(topic string, keys ...string) []sinks.Message {
	batch := make([]sinks.Message, len(keys))
	for i, key := range keys {
		batch[i] = sinks.Message{Message: outbox.Message{ID: fmt.Sprint(i), Topic: topic, Key: key, Payload: []byte("{}")}, CreatedAt: time.Now()}
	}
	return batch
}

// summary returns one letter for each outcome: Delivered, Retry, X for rejected, Unavailable, Postponed, Blocked, Cancelled.
func summary(outcomes []sinks.Outcome) (text string) {
	for _, o := range outcomes {
		letter := map[sinks.Result]string{sinks.Delivered: "D", sinks.Retry: "R", sinks.Reject: "X", sinks.Unavailable: "U"}[o.Result]
		if o.Result == sinks.Unsent {
			letter = map[sinks.Reason]string{sinks.ReasonBlocked: "B", sinks.ReasonCancelled: "C"}[o.Reason]
		}
		if o.RetryAfter > 0 {
			letter = "P"
		}
		text += letter
	}
	return text
}

// TestErrors: the code of an error decides the outcome of the first message of each key of the request.
func TestErrors(t *testing.T) {
	s := newServer(t, "orders", "other")
	single, several := opened(t, s, map[string]any{"topic": "orders"}), opened(t, s, map[string]any{})
	for _, test := range []struct {
		code           codes.Code
		single         string
		reason         sinks.Reason
		several        string
		severalsReason sinks.Reason
	}{
		{codes.NotFound, "UB", sinks.ReasonConfig, "PB", sinks.ReasonUnroutable},
		{codes.FailedPrecondition, "UB", sinks.ReasonConfig, "PB", sinks.ReasonUnroutable},
		{codes.PermissionDenied, "UB", sinks.ReasonAuth, "PB", sinks.ReasonAuth},
		{codes.Unauthenticated, "UB", sinks.ReasonAuth, "UB", sinks.ReasonAuth},
		{codes.ResourceExhausted, "UB", sinks.ReasonThrottled, "UB", sinks.ReasonThrottled},
		{codes.Unavailable, "UB", sinks.ReasonConnection, "UB", sinks.ReasonConnection},
		{codes.InvalidArgument, "XB", sinks.ReasonInvalid, "XB", sinks.ReasonInvalid},
		{codes.Internal, "RB", sinks.ReasonServerError, "RB", sinks.ReasonServerError},
		{codes.Aborted, "RB", sinks.ReasonServerError, "RB", sinks.ReasonServerError},
		{codes.Unknown, "RB", sinks.ReasonUnknown, "RB", sinks.ReasonUnknown},
		{codes.DeadlineExceeded, "RB", sinks.ReasonTimeout, "RB", sinks.ReasonTimeout},
	} {
		s.fails = func(*pubsubpb.PublishRequest) error { return status.Error(test.code, "because") }
		one, many := single.Send(t.Context(), batchOf("orders", "a", "a")), several.Send(t.Context(), batchOf("orders", "a", "a"))
		if summary(one) != test.single || one[0].Reason != test.reason || !strings.Contains(one[0].Detail, "because") {
			t.Errorf("%v, one topic: %+v", test.code, one)
		}
		if summary(many) != test.several || many[0].Reason != test.severalsReason {
			t.Errorf("%v, several topics: %+v", test.code, many)
		}
	}
}

// TestRequests: a request has the messages of one topic and one ordering key, within the limits of Pub/Sub.
func TestRequests(t *testing.T) {
	s := newServer(t, "orders", "other")
	ordered, unordered := opened(t, s, map[string]any{"concurrency": 1}), opened(t, s, map[string]any{"ordering": false, "concurrency": 1})
	large := func(sizes ...int) []sinks.Message {
		batch := batchOf("orders", make([]string, len(sizes))...)
		for i, size := range sizes {
			batch[i].Payload = make([]byte, size)
		}
		return batch
	}
	moved := batchOf("orders", "a", "b", "a", "a", "b")
	moved[2].Topic = "other"
	for name, test := range map[string]struct {
		sink        *sink
		batch       []sinks.Message
		want, sizes string
	}{
		"keys":                      {ordered, batchOf("orders", "a", "b", "a", "", "a", ""), "DDDDDD", "3 1 2"},
		"keys without ordering":     {unordered, batchOf("orders", "a", "b", "a", "", "a", ""), "DDDDDD", "6"},
		"many":                      {ordered, batchOf("orders", make([]string, 2500)...), strings.Repeat("D", 2500), "1000 1000 500"},
		"many of a key":             {ordered, batchOf("orders", strings.Split(strings.Repeat("a,", 1200), ",")...), strings.Repeat("D", 1201), "1000 1 200"},
		"large ones":                {ordered, large(4e6, 4e6, 4e6, 1e7, 9e6), "DDDXD", "2 1 1"},
		"a key in several topics":   {ordered, moved, "DDDDD", "1 2 1 1"},
		"the same without ordering": {unordered, moved, "DDDDD", "3 1 1"},
	} {
		s.mu.Lock()
		s.requests = nil
		s.mu.Unlock()
		outcomes := test.sink.Send(t.Context(), test.batch)
		var sizes []string
		for _, ids := range s.requests {
			sizes = append(sizes, fmt.Sprint(len(ids)))
		}
		if got := summary(outcomes); got != test.want || strings.Join(sizes, " ") != test.sizes {
			t.Errorf("%s: outcomes %.100s, want %.100s; requests of %v, want %s", name, got, test.want, sizes, test.sizes)
		}
	}
}

// TestOneMessageIsTheCause: if a request is refused because of one message, its messages are sent one at a time.
func TestOneMessageIsTheCause(t *testing.T) {
	s := newServer(t, "orders")
	s.answer("2", sinks.Reject)
	for ordering, want := range map[bool]string{true: "DDXBBDD", false: "DDXBBDD"} {
		sink := opened(t, s, map[string]any{"topic": "orders", "ordering": ordering})
		if got := summary(sink.Send(t.Context(), batchOf("orders", "a", "b", "a", "a", "a", "b", ""))); got != want {
			t.Errorf("ordering %v: %s, want %s", ordering, got, want)
		}
	}
}

// TestMessagesThatCannotBeCarried are rejected before they are sent.
func TestMessagesThatCannotBeCarried(t *testing.T) {
	s := newServer(t, "orders")
	sink := opened(t, s, map[string]any{"topic": "{header:topic}"})
	many := map[string]string{"topic": "orders"}
	for i := range 100 {
		many[fmt.Sprint("h", i)] = "v"
	}
	for want, headers := range map[string]map[string]string{
		"needs the message's header topic": {},
		"is not a topic's id":              {"topic": "google"},
		"a name that Pub/Sub":              {"topic": "orders", "goog-a": "1"},
		"belongs to the plug-in":           {"topic": "orders", "rowrelay-key": "1"},
		"longer than 1024 bytes":           {"topic": "orders", "a": strings.Repeat("v", 1025)},
		"more than 100 headers":            many,
	} {
		batch := batchOf("orders", "a", "a", "b")
		batch[0].Headers = headers
		batch[1].Headers, batch[2].Headers = map[string]string{"topic": "orders"}, map[string]string{"topic": "orders"}
		if o := sink.Send(t.Context(), batch); summary(o) != "XBD" || o[0].Reason != sinks.ReasonInvalid || !strings.Contains(o[0].Detail, want) {
			t.Errorf("%v: %s %+v", want, summary(o), o[0])
		}
	}
}

// TestOpenFindsAMissingTopic: Open fails while the topic is missing, and succeeds
// when it exists.
func TestOpenFindsAMissingTopic(t *testing.T) {
	s := newServer(t)
	t.Setenv("PUBSUB_EMULATOR_HOST", s.address)
	values, err := kind().Parse(map[string]any{"project": project, "topic": "orders"})
	check(t, err)
	sink, err := newSink(values)
	check(t, err)
	defer func() { check(t, sink.Close(t.Context())) }()
	if failed, ok := sink.Open(t.Context()).(*sinks.OpenError); !ok || failed.Reason != sinks.ReasonConfig || !strings.Contains(failed.Detail, "find the topic") {
		t.Errorf("Open: %+v", failed)
	}
	_, err = s.fake.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/" + project + "/topics/orders"})
	check(t, err)
	check(t, sink.Open(t.Context()))
}
