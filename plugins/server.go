package plugins

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// server answers the relay's calls in the plug-in's process.
type server struct {
	pluginv1.UnimplementedSinkServer
	kind    sinks.Kind
	version string

	opening sync.Mutex // allows one Open or Close at a time

	mu      sync.Mutex
	sink    sinks.Sink // made by the first Open
	sending map[uint64]context.CancelFunc
}

func newServer(kind sinks.Kind, version string) *server {
	return &server{kind: kind, version: version, sending: map[uint64]context.CancelFunc{}}
}

func (s *server) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	response := &pluginv1.DescribeResponse{Name: s.kind.Name, Summary: s.kind.Summary, Version: s.version}
	for _, f := range s.kind.Fields {
		response.Fields = append(response.Fields, &pluginv1.Field{
			Name: f.Name, Type: string(f.Type), DefaultValue: f.Default, Required: f.Required, Help: f.Help,
			Min: f.Min, Max: f.Max, Choices: f.Choices,
		})
	}
	return response, nil
}

func (s *server) Open(ctx context.Context, request *pluginv1.OpenRequest) (*pluginv1.OpenResponse, error) {
	ctx, cancel := limited(ctx, request.GetTimeoutMs())
	defer cancel()
	s.opening.Lock()
	defer s.opening.Unlock()
	sink, err := s.made(request.GetSettings())
	if err != nil {
		return troubled(&sinks.OpenError{Reason: sinks.ReasonConfig, Detail: err.Error()}), nil
	}
	if _, dedup := sink.(sinks.Deduplicating); dedup {
		return troubled(&sinks.OpenError{Reason: sinks.ReasonConfig, Detail: isDeduplicating}), nil
	}
	open := sink.Open
	if checker, is := sink.(sinks.Checker); is && request.GetCheckOnly() {
		open = checker.Check
	}
	if err := guarded("open", func() error { return open(ctx) }); err != nil {
		return troubled(err), nil
	}
	return promise(sink), nil
}

// made returns the sink, which the first call creates.
func (s *server) made(texts map[string]string) (sinks.Sink, error) {
	if sink := s.current(); sink != nil {
		return sink, nil
	}
	raw := map[string]any{}
	for name, text := range texts {
		raw[name] = text
		switch field, _ := s.kind.Field(name); field.Type {
		case settings.TypeList, settings.TypeMap, settings.TypeSecretMap: // the values of these types are JSON
			var value any
			if json.Unmarshal([]byte(text), &value) == nil {
				raw[name] = value
			}
		}
	}
	settings, err := s.kind.Parse(raw)
	if err != nil {
		return nil, err
	}
	var sink sinks.Sink
	if err := guarded("make", func() error { sink, err = s.kind.New(settings); return err }); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink = sink
	return sink, nil
}

func (s *server) current() sinks.Sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sink
}

func troubled(err error) *pluginv1.OpenResponse {
	o := sinks.Unopened(err)
	return &pluginv1.OpenResponse{Trouble: &pluginv1.Trouble{Reason: reasonToWire(o.Reason), Detail: shorten(o.Detail, maxDetail)}}
}

// promise returns the order and the limits of an open sink.
func promise(sink sinks.Sink) *pluginv1.OpenResponse {
	response := &pluginv1.OpenResponse{MaxRequestBytes: serverRequestBytes}
	if ordered, ok := sink.(sinks.Ordered); ok {
		response.Order = ordersToWire[ordered.Order()]
	}
	if limited, ok := sink.(sinks.Limited); ok {
		limits := limited.Limits()
		response.MaxMessages, response.MaxBytes, response.MaxSends = int32(limits.Messages), int64(limits.Bytes), int32(limits.Workers)
	}
	return response
}

func (s *server) Close(ctx context.Context, _ *pluginv1.CloseRequest) (*pluginv1.CloseResponse, error) {
	if err := s.close(ctx); err != nil {
		return &pluginv1.CloseResponse{Error: cmp.Or(shorten(err.Error(), maxDetail), "unknown")}, nil
	}
	return &pluginv1.CloseResponse{}, nil
}

func (s *server) close(ctx context.Context) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	sink := s.sink
	s.sink = nil
	s.mu.Unlock()
	if sink == nil {
		return nil
	}
	return guarded("close", func() error { return sink.Close(ctx) })
}

// guarded converts a panic of f to an error and logs its stack.
func guarded(what string, f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			slog.Error("the plug-in's sink panicked", "call", what, "panic", fmt.Sprint(cause), "stack", stack())
			err = fmt.Errorf("%s the sink: panic: %v", what, cause)
		}
	}()
	return f()
}

func stack() string { return strings.ReplaceAll(string(debug.Stack()), "\t", "  ") }

// isDeduplicating is the error for a sink that implements sinks.Deduplicating. The relay
// would have to call the sink's method Plan, which the protocol doesn't support.
const isDeduplicating = "the plug-in's sink implements sinks.Deduplicating, which the plug-in protocol doesn't support: use the sink inside the relay, or serve another sink"

var errNotOpen = errors.New("the plug-in was not opened")

func (s *server) Send(ctx context.Context, request *pluginv1.SendRequest) (*pluginv1.SendResponse, error) {
	ctx, cancel := limited(ctx, request.GetTimeoutMs())
	defer cancel()
	s.mu.Lock()
	s.sending[request.GetSendId()] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sending, request.GetSendId())
	}()
	batch := make([]sinks.Message, len(request.GetMessages()))
	for i, w := range request.GetMessages() {
		batch[i] = messageFromWire(w)
	}
	outcomes := s.hand(ctx, batch)
	response := &pluginv1.SendResponse{Outcomes: make([]*pluginv1.Outcome, len(outcomes))}
	for i, o := range outcomes {
		response.Outcomes[i] = outcomeToWire(o)
	}
	return response, nil
}

// hand passes a batch to the sink. If the sink panics, the outcome of every message of
// the batch is unknown.
func (s *server) hand(ctx context.Context, batch []sinks.Message) (outcomes []sinks.Outcome) {
	sink := s.current()
	if sink == nil {
		return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, errNotOpen.Error()))
	}
	err := guarded("send to", func() error { outcomes = sink.Send(ctx, batch); return nil })
	if err != nil {
		return sinks.All(len(batch), sinks.Fail(sinks.Retry, sinks.ReasonPanic, err.Error()))
	}
	return outcomes
}

// Cancel ends the context of a Send.
func (s *server) Cancel(_ context.Context, request *pluginv1.CancelRequest) (*pluginv1.CancelResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel, ok := s.sending[request.GetSendId()]; ok {
		cancel()
	}
	return &pluginv1.CancelResponse{}, nil
}

// limited returns a context with the relay's time limit. The limit starts when the plug-in receives the request, not
// when the relay sends it.
func limited(ctx context.Context, ms int64) (context.Context, context.CancelFunc) {
	if ms <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
}
