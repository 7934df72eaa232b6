package plugins

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

func (s *server) Send(ctx context.Context, request *pluginv1.SendRequest) (*pluginv1.SendResponse, error) {
	ctx, cancel := limited(ctx, request.GetTimeoutMs())
	defer cancel()
	s.begin(request.GetSendId(), cancel)
	defer s.end(request.GetSendId())
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

// hand hands a batch to the sink. After a panic nobody knows what was delivered.
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

func (s *server) begin(id uint64, cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending[id] = cancel
}

func (s *server) end(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sending, id)
}

// limited bounds a call by what the relay allows it, counted from now: clocks of
// two processes are the same, but what is on its way may wait.
func limited(ctx context.Context, ms int64) (context.Context, context.CancelFunc) {
	if ms <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
}
