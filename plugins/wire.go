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

// cookie tells a plug-in that a relay has started it, and a relay that what it
// starts means to be a plug-in of it. It is no secret.
var cookie = goplugin.HandshakeConfig{
	MagicCookieKey:   "ROWRELAY_PLUGIN",
	MagicCookieValue: "rowrelay-sink",
}

// protocolVersion is the newest version of the protocol that this package
// speaks, and the only one so far.
const protocolVersion = 1

// serviceName is what go-plugin calls the sink of a plug-in.
const serviceName = "sink"

// Encoded sizes in bytes. What a plug-in of this package takes has to be above
// the largest payload that a writer allows (256 MiB), with its headers.
const (
	defaultRequestBytes = 4 << 20 // what a gRPC server takes that was told nothing
	serverRequestBytes  = 288 << 20
	responseBytes       = 32 << 20 // 10,000 outcomes with all the text that is kept, and more
	windowBytes         = 4 << 20  // of HTTP/2: a usual batch is sent without waiting
	bufferBytes         = 256 << 10
)

// versions are what go-plugin chooses from when it has learnt which versions the
// other side knows.
func versions(s *server) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{protocolVersion: {serviceName: &service{server: s}}}
}

// service joins the protocol to go-plugin. The host's has no server.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	server *server
}

// GRPCServer is called in the plug-in.
func (s *service) GRPCServer(_ *goplugin.GRPCBroker, registrar *grpc.Server) error {
	if s.server == nil {
		return errors.New("serve a sink: there is none")
	}
	pluginv1.RegisterSinkServer(registrar, s.server)
	return nil
}

// GRPCClient is called in the relay.
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

// millis are rounded up, so that what is short doesn't become no limit.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// fromMillis takes no more than a day from the other side.
func fromMillis(ms int64) time.Duration {
	const day = 24 * time.Hour
	if ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, day.Milliseconds())) * time.Millisecond
}

// messageToWire fails where what the protocol says is text isn't UTF-8: one such
// message would keep the whole request from being encoded.
func messageToWire(m *sinks.Message) (*pluginv1.Message, error) {
	if !utf8.ValidString(m.ID) || !utf8.ValidString(m.Topic) {
		return nil, errors.New("the id or the topic is not UTF-8, the plug-in protocol can't carry it")
	}
	w := &pluginv1.Message{
		Id: m.ID, Topic: m.Topic, Key: []byte(m.Key), Payload: m.Payload, Sequence: m.Sequence, Attempt: int32(m.Attempt),
		CreatedAtUs: micros(m.CreatedAt), AvailableAtUs: micros(m.AvailableAt), ExpiresAtUs: micros(m.ExpiresAt), Priority: int32(m.Priority),
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("the name of the header %q is not UTF-8, the plug-in protocol can't carry it", name)
		}
		w.Headers = append(w.Headers, &pluginv1.Header{Name: name, Value: []byte(m.Headers[name])})
	}
	return w, nil
}

// messageFromWire leaves nil what isn't there.
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

// sizeInRequest is how many bytes a message takes as a part of an encoded request.
func sizeInRequest(w *pluginv1.Message) int { return 1 + protowire.SizeBytes(proto.Size(w)) }

// How much of an outcome's text the relay keeps, in bytes.
const (
	maxDetail  = 1000
	maxReceipt = 255
)

var results = map[sinks.Result]pluginv1.Result{
	sinks.Retry: pluginv1.Result_RETRY, sinks.Delivered: pluginv1.Result_DELIVERED, sinks.Reject: pluginv1.Result_REJECT,
	sinks.Unavailable: pluginv1.Result_UNAVAILABLE, sinks.Unsent: pluginv1.Result_UNSENT,
}

// meaning is what a value of the wire says here.
type meaning struct {
	reason sinks.Reason
	with   sinks.Result // the result that it goes with
	later  bool         // it goes with a message that is postponed, too
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

// usual are the reasons of results that come with none, or with one that isn't
// theirs: metrics rely on it that a reason belongs to its result.
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

// outcomeFromWire makes a sound outcome of whatever a plug-in says.
func outcomeFromWire(w *pluginv1.Outcome) sinks.Outcome {
	if w.GetResult() == pluginv1.Result_DELIVERED {
		return sinks.Ok(shorten(w.GetReceipt(), maxReceipt))
	}
	o := sinks.Outcome{Detail: shorten(w.GetDetail(), maxDetail)}
	for result, wire := range results {
		if wire == w.GetResult() {
			o.Result = result // a result that is not known here is a retry
		}
	}
	after := fromMillis(w.GetRetryAfterMs())
	known, ok := reasons[w.GetReason()]
	postponed := o.Result == sinks.Unsent && known.later && after > 0
	o.Reason = usual[o.Result]
	unavailable := o.Result == sinks.Retry && known.with == sinks.Unavailable // for this message, as far as the plug-in knows
	if ok && (known.with == o.Result || postponed || unavailable) {
		o.Reason = known.reason
	}
	if o.Result == sinks.Retry || o.Result == sinks.Unavailable || postponed {
		o.RetryAfter = after
	}
	return o
}

// What isn't here is no order.
var (
	ordersToWire   = map[sinks.Order]pluginv1.Order{sinks.OrderPrefix: pluginv1.Order_ORDER_PREFIX, sinks.OrderAtomic: pluginv1.Order_ORDER_ATOMIC}
	ordersFromWire = map[pluginv1.Order]sinks.Order{pluginv1.Order_ORDER_PREFIX: sinks.OrderPrefix, pluginv1.Order_ORDER_ATOMIC: sinks.OrderAtomic}
)

// shorten keeps so many bytes of a text, and makes UTF-8 of it, which is all
// that the wire carries.
func shorten(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
