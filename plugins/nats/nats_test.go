package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

const loginToken = "t0ken/with+signs"

// server is a NATS server that can be stopped and started again.
type server struct {
	t       testing.TB
	options natsserver.Options
	running *natsserver.Server
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, options: natsserver.Options{
		// Use a separate address, so that no other process gets the port while the server is
		// stopped.
		Host: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250)), Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), Authorization: loginToken,
		NoSigs: true, NoLog: true, MaxPayload: 4 << 20,
	}}
	s.start()
	s.options.Port = s.running.Addr().(*net.TCPAddr).Port
	t.Cleanup(s.stop)
	s.stream(func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "TEST", Subjects: []string{"sinktest", "orders.>"}})
		return err
	})
	return s
}

func (s *server) start() {
	s.t.Helper()
	options := s.options // the server changes its options
	running, err := natsserver.NewServer(&options)
	check(s.t, err)
	running.Start()
	if !running.ReadyForConnections(5 * time.Minute) {
		s.t.Fatal("the NATS server doesn't start")
	}
	s.running = running
}

func (s *server) stop() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// stream calls a function with a JetStream client that has a separate connection.
func (s *server) stream(work func(context.Context, jetstream.JetStream) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	connection, err := nats.Connect(s.running.ClientURL(), nats.Token(loginToken))
	check(s.t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	check(s.t, errors.Join(err, work(ctx, js)))
}

// received reads the stream from its beginning.
func (s *server) received() (got []outbox.Message) {
	s.stream(func(ctx context.Context, js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, "TEST")
		if err != nil {
			return err
		}
		for n := uint64(1); n <= stream.CachedInfo().State.LastSeq; n++ {
			stored, err := stream.GetMsg(ctx, n)
			if err != nil {
				return err
			}
			got = append(got, decode(stored))
		}
		return nil
	})
	return got
}

// decode decodes a message as a consumer does.
func decode(stored *jetstream.RawStreamMsg) outbox.Message {
	id, _ := url.PathUnescape(stored.Header.Get(jetstream.MsgIDHeader))
	key, _ := url.PathUnescape(stored.Header.Get(keyHeader))
	topic, _ := url.PathUnescape(stored.Header.Get(topicHeader))
	m := outbox.Message{ID: id, Topic: topic, Key: key, Payload: stored.Data, Headers: map[string]string{}}
	if stored.Header.Get(nullHeader) == "null" {
		m.Payload = nil
	} else if m.Payload == nil {
		m.Payload = []byte{}
	}
	for name, values := range stored.Header {
		if !strings.HasPrefix(name, "Nats-") && !sinks.ReservedHeader(name) {
			m.Headers[name] = values[0]
		}
	}
	return m
}

// TestMain runs the plug-in if a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("ROWRELAY_PLUGIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// pluginSink returns the plug-in as a relay uses it. The further settings are pairs of a name and a value.
func pluginSink(t testing.TB, s *server, further ...string) *plugins.Sink {
	t.Helper()
	config := map[string]string{"servers": s.running.ClientURL(), "stream": "TEST"}
	for pair := range slices.Chunk(further, 2) {
		config[pair[0]] = pair[1]
	}
	program, err := os.Executable()
	check(t, err)
	directory, err := os.MkdirTemp("", "p")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(directory)) })
	sink, err := plugins.New(plugins.Options{
		Path: program, Directory: directory,
		Config: config, Secrets: map[string]settings.Secret{"token": loginToken},
	})
	check(t, err)
	return sink
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		s := newServer(t)
		return sinktest.Harness{
			Sink: pluginSink(t, s), Received: s.received, Break: s.stop, Repair: s.start, Secrets: []string{loginToken},
			Astray: func(m *sinks.Message) { m.Topic = "nobody.listens" },
		}
	})
}

// The server recognises a duplicate by its id.
func TestDuplicateIsStoredOnce(t *testing.T) {
	s := newServer(t)
	sink := pluginSink(t, s)
	defer func() { check(t, sink.Close(context.Background())) }()
	check(t, sink.Open(t.Context()))
	batch := []sinks.Message{{Message: outbox.Message{ID: "0195", Topic: "orders.paid", Key: "42", Payload: []byte("{}")}}}
	for range 2 {
		if o := sink.Send(t.Context(), batch)[0]; o.Result != sinks.Delivered || o.Receipt != "TEST 1" {
			t.Errorf("outcome %+v", o)
		}
	}
	if got := s.received(); len(got) != 1 || got[0].ID != "0195" || got[0].Key != "42" {
		t.Errorf("stored %+v", got)
	}
}

func TestCheckCreatesNoStream(t *testing.T) {
	s := newServer(t)
	find := func(name string) (err error) {
		s.stream(func(ctx context.Context, js jetstream.JetStream) error {
			_, err = js.Stream(ctx, name)
			return nil
		})
		return err
	}
	for _, c := range []struct {
		settings []string
		works    bool
	}{{[]string{"stream", "NEW", "create_subjects", "new.>"}, true}, {[]string{"stream", "NEW"}, false}, {nil, true}} {
		sink := pluginSink(t, s, c.settings...)
		if err := sink.Check(t.Context()); (err == nil) != c.works {
			t.Errorf("check with %v: %v", c.settings, err)
		}
		check(t, sink.Close(context.Background()))
	}
	if err := find("NEW"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("after the checks: %v", err)
	}
	sink := pluginSink(t, s, "stream", "NEW", "create_subjects", "new.>")
	defer func() { check(t, sink.Close(context.Background())) }()
	check(t, sink.Open(t.Context()))
	check(t, find("NEW"))
}

// A message whose subject no stream accepts is postponed, uncharged, and a message that NATS
// can't carry is rejected. Neither blocks messages of other topics.
func TestUnroutableAndInvalidMessages(t *testing.T) {
	s := newServer(t)
	sink := pluginSink(t, s)
	defer func() { check(t, sink.Close(context.Background())) }()
	check(t, sink.Open(t.Context()))
	var batch []sinks.Message
	for _, topic := range []string{"nobody.listens", "orders. *", "orders.paid"} {
		batch = append(batch, sinks.Message{Message: outbox.Message{ID: topic, Topic: topic}})
	}
	got := sink.Send(t.Context(), batch)
	if o := got[0]; o.Result != sinks.Unsent || o.Reason != sinks.ReasonUnroutable || o.RetryAfter <= 0 {
		t.Errorf("no stream accepts the subject: %+v, want it postponed", o)
	}
	if o := got[1]; o.Result != sinks.Reject || o.Reason != sinks.ReasonInvalid {
		t.Errorf("invalid subject: %+v, want it rejected", o)
	}
	if o := got[2]; o.Result != sinks.Delivered {
		t.Errorf("another topic: %+v, want it delivered", o)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
