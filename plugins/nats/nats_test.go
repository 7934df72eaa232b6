package main

import (
	"context"
	crand "crypto/rand"
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

const password = "pa55word/with+signs"

// server is a NATS server that can be stopped and started again.
type server struct {
	t       testing.TB
	options natsserver.Options
	running *natsserver.Server
	login   []nats.Option // more options of the tests' own connections, besides the user
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, options: natsserver.Options{
		// Use a separate address, so that no other process gets the port while the server is
		// stopped.
		Host: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250)), Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		Users: []*natsserver.User{
			{Username: "relay", Password: password, Permissions: &natsserver.Permissions{Publish: &natsserver.SubjectPermission{Deny: []string{"orders.secret"}}}},
			{Username: "admin", Password: password},
		},
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
	options := s.options // a copy, because the server changes its options
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
	connection, err := nats.Connect(s.running.ClientURL(), append(s.login, nats.UserInfo("admin", password))...)
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

// TestMain runs the plug-in or a server if a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("ROWRELAY_PLUGIN") != "" {
		main()
		return
	}
	if folder := os.Getenv(serverFolder); folder != "" {
		serve(folder)
		return
	}
	os.Exit(m.Run())
}

// pluginSink returns the plug-in as a relay uses it. The further settings are pairs of a name and a value.
func pluginSink(t testing.TB, s *server, further ...string) *plugins.Sink {
	t.Helper()
	config, secrets := map[string]string{"servers": s.running.ClientURL(), "stream": "TEST", "username": "relay"}, map[string]settings.Secret{"password": password}
	for pair := range slices.Chunk(further, 2) {
		config[pair[0]] = pair[1]
	}
	if config["nkey_file"] != "" {
		delete(config, "username")
		delete(secrets, "password")
	}
	program, err := os.Executable()
	check(t, err)
	directory, err := os.MkdirTemp("", "p")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(directory)) })
	sink, err := plugins.New(plugins.Options{
		Path: program, Directory: directory,
		Config: config, Secrets: secrets,
	})
	check(t, err)
	return sink
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		s := newServer(t)
		p := newProxy(t, s.running.ClientURL()) // a restarted server has the same URL
		return sinktest.Harness{
			Sink: pluginSink(t, s, "servers", p.url()), Received: s.received, Break: s.stop, Repair: s.start, Stall: p.stall, Secrets: []string{password},
			Astray: func(m *sinks.Message) { m.Topic = "nobody.listens" },
		}
	})
}

// opened returns the plug-in's sink, which is open until the test ends.
func opened(t testing.TB, s *server, further ...string) *plugins.Sink {
	t.Helper()
	sink := pluginSink(t, s, further...)
	t.Cleanup(func() { check(t, sink.Close(context.Background())) })
	check(t, sink.Open(t.Context()))
	return sink
}

// message returns a message of a topic. Messages with different numbers have different ids.
func message(n int, topic, key string) sinks.Message {
	return sinks.Message{
		Message:  outbox.Message{ID: fmt.Sprint("0195-", n), Topic: topic, Key: key, Payload: []byte("{}")},
		Sequence: int64(n), Attempt: 1, CreatedAt: time.Now(),
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

// delivered sends messages, which must be delivered, and returns their receipts.
func delivered(t testing.TB, sink sinks.Sink, batch ...sinks.Message) (receipts []string) {
	t.Helper()
	for i, o := range sink.Send(t.Context(), batch) {
		if o.Result != sinks.Delivered {
			t.Fatalf("message %d: %+v, want it delivered", i+1, o)
		}
		receipts = append(receipts, o.Receipt)
	}
	return receipts
}

// Within its duplicate window, the stream recognises a message by its id. The copy that a replay has made is another message.
func TestDuplicateIsStoredOnceWithinTheWindow(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	first, second, replayed := opened(t, s), opened(t, s), message(1, "orders.paid", "42")
	replayed.Headers = map[string]string{sinks.ReplayedHeader: "lost by billing"}
	for _, test := range []struct {
		sink    sinks.Sink
		message sinks.Message
		want    string
	}{
		{first, message(1, "orders.paid", "42"), "TEST 1"}, {first, message(2, "orders.paid", "42"), "TEST 2"},
		{second, message(1, "orders.paid", "42"), "TEST 1"}, {second, replayed, "TEST 3"}, {first, replayed, "TEST 3"},
	} {
		if got := delivered(t, test.sink, test.message)[0]; got != test.want {
			t.Errorf("the receipt of %+v is %s, want %s", test.message, got, test.want)
		}
	}
}

// A killed relay has stored several messages of a key in the stream, but hasn't recorded this in the table.
// After the duplicate window, they are sent again with later messages, first by the sink of another relay and
// then by the first sink.
func TestDuplicateIsStoredOnceAfterTheWindow(t *testing.T) {
	t.Parallel()
	for subject, once := range map[string]bool{"{topic}": false, "{topic}.{key}": true, "{topic}.{id}": true} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.stream(func(ctx context.Context, js jetstream.JetStream) error {
				_, err := js.UpdateStream(ctx, jetstream.StreamConfig{Name: "TEST", Subjects: []string{"orders.>"}, Duplicates: 100 * time.Millisecond, AllowDirect: true})
				return err
			})
			var batch []sinks.Message
			for n := range 12 {
				batch = append(batch, message(n+1, "orders.paid", []string{"a", "b.*", "c"}[n%3]))
			}
			first := opened(t, s, "subject", subject)
			want := delivered(t, first, batch[:9]...)
			s.forgetIDs()
			got := delivered(t, opened(t, s, "subject", subject), batch...)
			s.forgetIDs()
			again := delivered(t, first, batch...)
			if once && (!slices.Equal(got[:9], want) || !slices.Equal(again, got)) {
				t.Errorf("the receipts are %v, then %v, then %v, want the same ones", want, got, again)
			}
			replayed := batch[0]
			replayed.Headers = map[string]string{sinks.ReplayedHeader: "again"}
			if receipt := delivered(t, first, replayed)[0]; slices.Contains(again, receipt) {
				t.Errorf("the copy of a replay was not stored")
			}
			if got := len(s.received()) - 2*probes - 1; (got == len(batch)) != once { // the probes and the copy don't count
				t.Errorf("the stream has %d messages, want each once: %v", got, once)
			}
		})
	}
}

// A message was parked without being stored, and later messages of its key were stored. When the parked
// message is requeued, it is stored.
func TestRequeuedMessageIsStored(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	first, second := opened(t, s, "subject", "{topic}.{key}"), opened(t, s, "subject", "{topic}.{key}")
	delivered(t, first, message(2, "orders.paid", "a"), message(3, "orders.paid", "a"))
	for i, sink := range []sinks.Sink{first, second} {
		if got, want := delivered(t, sink, message(i, "orders.paid", "a"))[0], fmt.Sprint("TEST ", 3+i); got != want {
			t.Errorf("receipt %s, want %s", got, want)
		}
	}
}

// forgetIDs waits until the stream has forgotten the ids of all its messages. It stores two messages itself.
func (s *server) forgetIDs() {
	s.t.Helper()
	s.stream(func(ctx context.Context, js jetstream.JetStream) error {
		probe := &nats.Msg{Subject: "orders.probe", Header: nats.Header{jetstream.MsgIDHeader: {crand.Text()}}}
		if _, err := js.PublishMsg(ctx, probe); err != nil {
			return err
		}
		for {
			stored, err := js.PublishMsg(ctx, probe)
			if err != nil || !stored.Duplicate { // the stream has forgotten the id of the first probe, and so all older ones
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

const probes = 2 // number of messages that forgetIDs stores

// A relay that sends with an outdated sequence stores nothing between the messages of another relay.
func TestOutdatedSequenceIsRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	first, second := opened(t, s, "subject", "{topic}.{key}"), opened(t, s, "subject", "{topic}.{key}")
	for n := range 10 { // each sink has to find out about the other's message
		want := fmt.Sprint("TEST ", n+1)
		sink := []sinks.Sink{first, second}[n%2]
		if got := delivered(t, sink, message(n, "orders.paid", "a"))[0]; got != want {
			t.Errorf("receipt %s, want %s", got, want)
		}
	}
	got := s.received()
	for n, m := range got {
		if m.ID != fmt.Sprint("0195-", n) {
			t.Errorf("message %d is %s", n, m.ID)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
