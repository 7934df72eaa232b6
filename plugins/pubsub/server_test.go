package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// TestMain runs the plug-in if a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("ROWRELAY_PLUGIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// server is the fake server of the client library, behind a listener that can be stopped and started again. It also
// refuses the requests that Pub/Sub refuses because of its limits.
type server struct {
	t       testing.TB
	fake    *pstest.Server
	address string
	grpc    *grpc.Server

	mu       sync.Mutex
	answers  map[string]sinks.Result
	fails    func(*pubsubpb.PublishRequest) error
	stalled  *stall
	requests [][]string // the ids of the messages of each request
}

// stall holds back answers.
type stall struct {
	reached, released chan struct{}
	once              sync.Once
}

const project = "shop"

func newServer(t testing.TB, topics ...string) *server {
	t.Helper()
	s := &server{t: t, fake: pstest.NewServer(), answers: map[string]sinks.Result{}}
	t.Cleanup(func() { check(t, s.fake.Close()) })
	for _, topic := range topics {
		_, err := s.fake.GServer.CreateTopic(context.Background(), &pubsubpb.Topic{Name: "projects/" + project + "/topics/" + topic})
		check(t, err)
	}
	// Use a separate address, so that no other process gets the port while the server is stopped.
	s.address = fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *server) start() {
	listener, err := net.Listen("tcp", s.address)
	check(s.t, err)
	s.address = listener.Addr().String()
	s.grpc = grpc.NewServer(grpc.UnaryInterceptor(s.intercept), grpc.MaxRecvMsgSize(20<<20))
	pubsubpb.RegisterPublisherServer(s.grpc, &s.fake.GServer)
	go func(g *grpc.Server) {
		if err := g.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.t.Error(err)
		}
	}(s.grpc)
}

func (s *server) stop() { s.grpc.Stop() }

func (s *server) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	publish, ok := request.(*pubsubpb.PublishRequest)
	if !ok {
		return handle(ctx, request)
	}
	if err := s.refusal(publish); err != nil {
		return nil, err
	}
	s.mu.Lock()
	stalled := s.stalled
	s.mu.Unlock()
	response, err := handle(ctx, request)
	if stalled != nil {
		stalled.once.Do(func() { close(stalled.reached) })
		<-stalled.released
	}
	return response, err
}

// refusal returns the error of a request that Pub/Sub or the test refuses.
func (s *server) refusal(request *pubsubpb.PublishRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, m := range request.Messages {
		id := m.Attributes[idAttribute]
		ids = append(ids, id)
		answer, hasAnswer := s.answers[id]
		switch {
		case hasAnswer && answer == sinks.Retry:
			return status.Error(codes.Internal, "try later")
		case hasAnswer && answer == sinks.Reject:
			return status.Error(codes.InvalidArgument, "not this one")
		case m.OrderingKey != request.Messages[0].OrderingKey:
			return status.Error(codes.InvalidArgument, "the messages of a request must have one ordering key")
		case len(m.OrderingKey) > 1024 || len(m.Attributes) > 100 || len(m.Data) == 0 && len(m.Attributes) == 0:
			return status.Error(codes.InvalidArgument, "a message is not valid")
		}
		for name, value := range m.Attributes {
			if len(name) == 0 || len(name) > 256 || len(value) > 1024 || strings.HasPrefix(name, "goog") {
				return status.Error(codes.InvalidArgument, "an attribute is not valid")
			}
		}
	}
	if len(request.Messages) > 1000 || proto.Size(request) > 10_000_000 {
		return status.Error(codes.InvalidArgument, "the request is too large")
	}
	if s.fails != nil {
		if err := s.fails(request); err != nil {
			return err
		}
	}
	s.requests = append(s.requests, ids)
	return nil
}

// answer sets the answer to a message.
func (s *server) answer(id string, result sinks.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[id] = result
}

// stall holds back the next answers to messages.
func (s *server) stall() (<-chan struct{}, func()) {
	stalled := &stall{reached: make(chan struct{}), released: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = stalled
	return stalled.reached, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stalled = nil
		close(stalled.released)
	}
}

// received returns all published messages in the order in which they were stored.
func (s *server) received() (got []outbox.Message) {
	for _, stored := range s.fake.Messages() {
		got = append(got, decode(stored.Data, stored.Attributes))
	}
	return got
}

// decode decodes a message as a consumer does.
func decode(data []byte, attributes map[string]string) outbox.Message {
	m := outbox.Message{ID: attributes["rowrelay-message-id"], Topic: attributes["rowrelay-topic"], Key: attributes["rowrelay-key"], Payload: data, Headers: map[string]string{}}
	if attributes["rowrelay-payload"] == "null" {
		m.Payload = nil
	} else if m.Payload == nil {
		m.Payload = []byte{}
	}
	for name, value := range attributes {
		if !strings.HasPrefix(name, "rowrelay-") {
			m.Headers[name] = value
		}
	}
	return m
}

// pluginSink returns the plug-in as a relay uses it.
func pluginSink(t testing.TB, s *server, config map[string]string) *plugins.Sink {
	t.Helper()
	config["project"] = project
	program, err := os.Executable()
	check(t, err)
	directory, err := os.MkdirTemp("", "p")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(directory)) })
	sink, err := plugins.New(plugins.Options{Path: program, Directory: directory, Config: config, Env: map[string]settings.Secret{"PUBSUB_EMULATOR_HOST": settings.Secret(s.address)}})
	check(t, err)
	return sink
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
