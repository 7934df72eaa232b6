package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// cookie is the environment variable by which a plug-in recognises that a relay started
// it. Its value is not a secret.
var cookie = goplugin.HandshakeConfig{
	MagicCookieKey:   "ROWRELAY_PLUGIN",
	MagicCookieValue: "rowrelay-sink",
}

// protocolVersion is the only version of the protocol so far.
const protocolVersion = 1

// serviceName is the name of the sink service in go-plugin.
const serviceName = "sink"

// Encoded sizes in bytes. A plug-in that uses this package must accept the largest
// payload that a writer allows (256 MiB), with its headers.
const (
	defaultRequestBytes = 4 << 20 // the default limit of gRPC servers
	serverRequestBytes  = 288 << 20
	responseBytes       = 32 << 20 // enough for more than 10,000 outcomes with the longest texts
	windowBytes         = 4 << 20  // HTTP/2 window; large enough for a usual batch, so that a sender need not wait for a window update
	bufferBytes         = 256 << 10
)

// versions returns the service for each protocol version. go-plugin chooses a
// version that both sides support.
func versions(s *server) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{protocolVersion: {serviceName: &service{server: s}}}
}

// service registers the protocol with go-plugin. On the relay's side, server is
// nil.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	server *server
}

// GRPCServer registers the server. go-plugin calls it in the plug-in's process.
func (s *service) GRPCServer(_ *goplugin.GRPCBroker, registrar *grpc.Server) error {
	if s.server == nil {
		return errors.New("serve a sink: no sink is set")
	}
	pluginv1.RegisterSinkServer(registrar, s.server)
	return nil
}

// GRPCClient returns a client for the plug-in. go-plugin calls it in the relay.
func (*service) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, connection *grpc.ClientConn) (any, error) {
	return pluginv1.NewSinkClient(connection), nil
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// millis converts a duration to milliseconds. It rounds up, so that a short limit
// doesn't become 0, which means no limit.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// fromMillis converts a duration from the plug-in, and limits it to a day.
func fromMillis(ms int64) time.Duration {
	const day = 24 * time.Hour
	if ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, day.Milliseconds())) * time.Millisecond
}

// messageToWire converts a message for the plug-in. It returns an error if a text field
// of the protocol would not be UTF-8, because one such message would make the encoding
// of the whole request fail.
func messageToWire(m *sinks.Message) (*pluginv1.Message, error) {
	if !utf8.ValidString(m.ID) || !utf8.ValidString(m.Topic) {
		return nil, errors.New("the id or the topic is not UTF-8, which the plug-in protocol can't carry")
	}
	w := &pluginv1.Message{
		Id: m.ID, Topic: m.Topic, Key: []byte(m.Key), Payload: m.Payload, Sequence: m.Sequence, Attempt: int32(m.Attempt),
		CreatedAtUs: micros(m.CreatedAt), AvailableAtUs: micros(m.AvailableAt), ExpiresAtUs: micros(m.ExpiresAt), Priority: int32(m.Priority),
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("the name of the header %q is not UTF-8, which the plug-in protocol can't carry", name)
		}
		w.Headers = append(w.Headers, &pluginv1.Header{Name: name, Value: []byte(m.Headers[name])})
	}
	return w, nil
}

// messageFromWire converts a message from the relay. If the message has no payload or
// no headers, that field is nil.
func messageFromWire(w *pluginv1.Message) sinks.Message {
	m := sinks.Message{
		Message: outbox.Message{
			ID: w.GetId(), Topic: w.GetTopic(), Key: string(w.GetKey()), Payload: w.Payload,
			AvailableAt: fromMicros(w.GetAvailableAtUs()), ExpiresAt: fromMicros(w.GetExpiresAtUs()), Priority: int16(w.GetPriority()),
		},
		Sequence: w.GetSequence(), Attempt: int(w.GetAttempt()), CreatedAt: fromMicros(w.GetCreatedAtUs()),
	}
	if len(w.GetHeaders()) > 0 {
		m.Headers = make(map[string]string, len(w.GetHeaders()))
	}
	for _, h := range w.GetHeaders() {
		m.Headers[h.GetName()] = string(h.GetValue())
	}
	return m
}

// sizeInRequest returns the size of a message in an encoded request.
func sizeInRequest(w *pluginv1.Message) int { return 1 + protowire.SizeBytes(proto.Size(w)) }

// The maximum length of an outcome's texts, in bytes.
const (
	maxDetail  = 1000
	maxReceipt = 255
)

var results = map[sinks.Result]pluginv1.Result{
	sinks.Retry: pluginv1.Result_RETRY, sinks.Delivered: pluginv1.Result_DELIVERED, sinks.Reject: pluginv1.Result_REJECT,
	sinks.Unavailable: pluginv1.Result_UNAVAILABLE, sinks.Unsent: pluginv1.Result_UNSENT,
}

// meaning describes a reason of the protocol in the terms of package sinks.
type meaning struct {
	reason sinks.Reason
	with   sinks.Result // the result to which the reason belongs
	later  bool         // a postponed message can also have this reason
}

var reasons = map[pluginv1.Reason]meaning{
	pluginv1.Reason_REASON_UNSPECIFIED: {reason: sinks.ReasonNone, with: sinks.Delivered},
	pluginv1.Reason_UNKNOWN:            {reason: sinks.ReasonUnknown, with: sinks.Retry},
	pluginv1.Reason_TIMEOUT:            {reason: sinks.ReasonTimeout, with: sinks.Retry},
	pluginv1.Reason_SERVER_ERROR:       {reason: sinks.ReasonServerError, with: sinks.Retry},
	pluginv1.Reason_HANDLER_ERROR:      {reason: sinks.ReasonHandlerError, with: sinks.Retry},
	pluginv1.Reason_PANIC:              {reason: sinks.ReasonPanic, with: sinks.Retry},
	pluginv1.Reason_BUSY:               {reason: sinks.ReasonBusy, with: sinks.Retry, later: true},
	pluginv1.Reason_TOO_LARGE:          {reason: sinks.ReasonTooLarge, with: sinks.Reject},
	pluginv1.Reason_INVALID:            {reason: sinks.ReasonInvalid, with: sinks.Reject},
	pluginv1.Reason_REFUSED:            {reason: sinks.ReasonRefused, with: sinks.Reject},
	pluginv1.Reason_UNROUTABLE:         {reason: sinks.ReasonUnroutable, with: sinks.Reject, later: true},
	pluginv1.Reason_CONNECTION:         {reason: sinks.ReasonConnection, with: sinks.Unavailable, later: true},
	pluginv1.Reason_THROTTLED:          {reason: sinks.ReasonThrottled, with: sinks.Unavailable, later: true},
	pluginv1.Reason_AUTH:               {reason: sinks.ReasonAuth, with: sinks.Unavailable, later: true},
	pluginv1.Reason_CONFIG:             {reason: sinks.ReasonConfig, with: sinks.Unavailable},
	pluginv1.Reason_CANCELLED:          {reason: sinks.ReasonCancelled, with: sinks.Unsent},
	pluginv1.Reason_BLOCKED:            {reason: sinks.ReasonBlocked, with: sinks.Unsent},
}

// usual has the default reason of each result. The default replaces a missing reason, and a reason that doesn't
// belong to the result. Metrics require that the reason of an outcome belongs to the outcome's result.
var usual = map[sinks.Result]sinks.Reason{
	sinks.Delivered: sinks.ReasonNone, sinks.Retry: sinks.ReasonUnknown, sinks.Reject: sinks.ReasonRefused,
	sinks.Unavailable: sinks.ReasonConnection, sinks.Unsent: sinks.ReasonBlocked,
}

func reasonToWire(reason sinks.Reason) pluginv1.Reason {
	for wire, known := range reasons {
		if known.reason == reason {
			return wire
		}
	}
	return pluginv1.Reason_REASON_UNSPECIFIED
}

func outcomeToWire(o sinks.Outcome) *pluginv1.Outcome {
	if o.Result == sinks.Delivered {
		return &pluginv1.Outcome{Result: pluginv1.Result_DELIVERED, Receipt: shorten(o.Receipt, maxReceipt)}
	}
	return &pluginv1.Outcome{
		Result: results[o.Result], Reason: reasonToWire(o.Reason), RetryAfterMs: millis(o.RetryAfter),
		Detail: shorten(o.Detail, maxDetail), Receipt: shorten(o.Receipt, maxReceipt),
	}
}

// outcomeFromWire converts a plug-in's answer to a valid outcome, even if the answer
// is invalid.
func outcomeFromWire(w *pluginv1.Outcome) sinks.Outcome {
	if w.GetResult() == pluginv1.Result_DELIVERED {
		return sinks.Ok(shorten(w.GetReceipt(), maxReceipt))
	}
	o := sinks.Outcome{Detail: shorten(w.GetDetail(), maxDetail)}
	for result, wire := range results {
		if wire == w.GetResult() {
			o.Result = result // unknown results become a retry
		}
	}
	after := fromMillis(w.GetRetryAfterMs())
	known, ok := reasons[w.GetReason()]
	postponed := o.Result == sinks.Unsent && known.later && after > 0
	o.Reason = usual[o.Result]
	unavailable := o.Result == sinks.Retry && known.with == sinks.Unavailable // a Retry may also have a reason that belongs to Unavailable, if one message failed and the plug-in suspects the destination
	if ok && (known.with == o.Result || postponed || unavailable) {
		o.Reason = known.reason
	}
	if o.Result == sinks.Retry || o.Result == sinks.Unavailable || postponed {
		o.RetryAfter = after
	}
	return o
}

// A value that is missing from these maps stands for OrderNone.
var (
	ordersToWire   = map[sinks.Order]pluginv1.Order{sinks.OrderPrefix: pluginv1.Order_ORDER_PREFIX, sinks.OrderAtomic: pluginv1.Order_ORDER_ATOMIC}
	ordersFromWire = map[pluginv1.Order]sinks.Order{pluginv1.Order_ORDER_PREFIX: sinks.OrderPrefix, pluginv1.Order_ORDER_ATOMIC: sinks.OrderAtomic}
)

// shorten cuts a text to at most the given number of bytes and makes it valid UTF-8,
// which the protocol requires.
func shorten(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
