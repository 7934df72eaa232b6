package main

import (
	"context"
	"strings"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// sink publishes messages to topics of one project. Pub/Sub stores either all messages of a
// Publish request, in their order, or none. The sink makes these requests itself, because the client's Publisher
// would collect messages and publish them later.
type sink struct {
	project  string
	topic    settings.Template // the topic's id
	ordering bool
	endpoint string // "" for the global one
	fan      *sinks.Fan

	client *pubsub.TopicAdminClient // set by Open
}

// Open connects, and looks for the topic unless messages choose it.
func (s *sink) Open(ctx context.Context) error {
	if s.client == nil {
		client, err := s.connect()
		if err != nil {
			return &sinks.OpenError{Reason: sinks.ReasonAuth, Detail: present("get the credentials: " + err.Error())}
		}
		s.client = client
	}
	if s.topic.Places() > 0 {
		return nil
	}
	name, err := s.topicOf(&sinks.Message{})
	if err == nil {
		_, err = s.client.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
	}
	if err == nil || status.Code(err) == codes.PermissionDenied { // publishing doesn't need the right to look for the topic
		return nil
	}
	reason := sinks.ReasonConnection
	if what := meant(ctx, err); what.result == sinks.Unavailable {
		reason = what.reason
	}
	return &sinks.OpenError{Reason: reason, Detail: present("find the topic: " + err.Error())}
}

// connect returns a client that doesn't retry requests, because the relay retries messages. The client reconnects within
// seconds after an outage.
func (s *sink) connect() (*pubsub.TopicAdminClient, error) {
	backOff := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	options := []option.ClientOption{option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{Backoff: backOff, MinConnectTimeout: 20 * time.Second}))}
	if s.endpoint != "" {
		options = append(options, option.WithEndpoint(s.endpoint))
	}
	client, err := pubsub.NewTopicAdminClient(context.Background(), options...) // without the context of Open, because the client refreshes tokens later
	if err != nil {
		return nil, err
	}
	client.CallOptions.Publish, client.CallOptions.GetTopic = nil, nil // the default options retry requests
	return client, nil
}

// Close ends the connections.
func (s *sink) Close(context.Context) error {
	if s.client == nil {
		return nil
	}
	defer func() { s.client = nil }()
	return s.client.Close()
}

// Destination describes the topic.
func (s *sink) Destination() string {
	return "pubsub " + s.project + ", topic " + strings.Join(s.topic.Texts(), "{}")
}

// Order returns sinks.OrderPrefix: a message is sent only with or after the previous message of its key.
func (s *sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send publishes the messages in rounds. In one round, each request has messages of one topic and one ordering key. A
// message waits for the next round only if the previous message of its key is in another request. Usually one round
// suffices.
func (s *sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	switch {
	case s.client == nil:
		return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "the sink isn't open"))
	case ctx.Err() != nil:
		return sinks.All(len(batch), sinks.Cancelled())
	}
	r := &run{sink: s, batch: batch, outcomes: make([]sinks.Outcome, len(batch)), blocked: map[string]bool{}, alone: map[int]bool{}}
	left := make([]int, len(batch))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		var requests []*request
		requests, left = r.round(left)
		if left = append(r.publish(ctx, requests), left...); r.down {
			for _, i := range left {
				r.settle(i, sinks.Blocked())
			}
			break
		}
	}
	return r.outcomes
}

// run is the state of one Send.
type run struct {
	sink     *sink
	batch    []sinks.Message
	outcomes []sinks.Outcome
	blocked  map[string]bool // keys with a message that was not delivered
	alone    map[int]bool    // messages that need a request of their own
	down     bool            // Pub/Sub is unavailable
}

// request is a Publish request. The field messages has the indexes of its messages in the batch.
type request struct {
	*pubsubpb.PublishRequest
	messages []int
	bytes    int
	full     bool
	ids      []string // the ids of the stored messages
	failed   meaning
}

// Pub/Sub's limits for requests. A request's size includes the name of the topic and the lengths of its parts.
const (
	mostMessages = 1000
	mostBytes    = 10_000_000
	overhead     = 16 // bytes that a part of a request takes in addition to its content
)

// round divides the remaining messages into the requests of one round and the messages that wait for the next round.
func (r *run) round(left []int) (requests []*request, later []int) {
	type of struct{ topic, key string }
	open, holder, waits := map[of]*request{}, map[string]*request{}, map[string]bool{}
	for _, i := range left {
		m := &r.batch[i]
		if m.Key != "" && r.blocked[m.Key] {
			r.outcomes[i] = sinks.Blocked()
			continue
		}
		if m.Key != "" && waits[m.Key] {
			later = append(later, i)
			continue
		}
		topic, err := r.sink.topicOf(m)
		var encoded *pubsubpb.PubsubMessage
		if err == nil {
			encoded, err = r.sink.encode(m)
		}
		if err != nil && holder[m.Key] == nil {
			r.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error()))
			continue
		}
		at := of{topic, encoded.GetOrderingKey()}
		size := proto.Size(encoded) + overhead
		to := open[at]
		if to == nil || to.full || to.bytes+size > mostBytes || r.alone[i] {
			to = &request{PublishRequest: &pubsubpb.PublishRequest{Topic: topic}, bytes: len(topic) + overhead}
		}
		if before := holder[m.Key]; err != nil || m.Key != "" && before != nil && before != to { // the key's previous message is in another request
			waits[m.Key] = true
			later = append(later, i)
			continue
		}
		if to.bytes+size > mostBytes {
			r.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, "the message is larger than a request of Pub/Sub may be"))
			continue
		}
		if len(to.messages) == 0 {
			requests = append(requests, to)
			open[at] = to
		}
		to.Messages, to.messages, to.bytes = append(to.Messages, encoded), append(to.messages, i), to.bytes+size
		to.full = len(to.messages) == mostMessages || r.alone[i]
		if m.Key != "" {
			holder[m.Key] = to
		}
	}
	return requests, later
}

// settle records an outcome. If the message was not delivered, the later messages of its key are not sent.
func (r *run) settle(i int, o sinks.Outcome) {
	key := r.batch[i].Key
	if key != "" && r.blocked[key] {
		o = sinks.Blocked()
	}
	r.outcomes[i] = o
	if o.Result != sinks.Delivered && key != "" {
		r.blocked[key] = true
	}
}

// publish sends the requests of a round concurrently, and returns the messages that have to be sent again, each in a
// request of its own.
func (r *run) publish(ctx context.Context, requests []*request) (again []int) {
	parts := make([]sinks.Message, len(requests)) // one message for each request, because Fan limits concurrent messages
	for n := range parts {
		parts[n].Sequence = int64(n)
	}
	outcomes := r.sink.fan.Send(ctx, parts, func(ctx context.Context, part sinks.Message) sinks.Outcome {
		return r.one(ctx, requests[part.Sequence])
	})
	for n, o := range outcomes {
		sent := requests[n]
		r.down = r.down || o.Result == sinks.Unavailable
		for at, i := range sent.messages {
			switch {
			case o.Result == sinks.Delivered:
				r.settle(i, sinks.Ok(sent.ids[at]))
			case sent.failed.single && len(sent.messages) > 1:
				r.alone[i] = true
				again = append(again, i)
			case sent.failed != meaning{}:
				r.settle(i, r.sink.outcome(&r.batch[i], sent.failed, o.Detail))
			default: // not sent
				r.settle(i, o)
			}
		}
	}
	return again
}

// one sends a request.
func (r *run) one(ctx context.Context, sent *request) sinks.Outcome {
	response, err := r.sink.client.Publish(ctx, sent.PublishRequest)
	if err == nil && len(response.GetMessageIds()) != len(sent.messages) {
		err = status.Error(codes.Unknown, "the answer doesn't have exactly one id for each message of the request")
	}
	if err == nil {
		sent.ids = response.GetMessageIds()
		return sinks.Ok("")
	}
	sent.failed = meant(ctx, err)
	return r.sink.outcome(&r.batch[sent.messages[0]], sent.failed, present(err.Error()))
}
