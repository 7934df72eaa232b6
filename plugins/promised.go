package plugins

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// promised is what a plug-in's open sink promises, and asks for. Numbers that are
// zero are no limit.
type promised struct {
	order        sinks.Order
	messages     int
	bytes        int // of payload
	requestBytes int // encoded; never zero
	slots        chan struct{}
}

func promiseOf(response *pluginv1.OpenResponse) promised {
	p := promised{
		order:        orderFromWire(response.GetOrder()),
		messages:     int(max(response.GetMaxMessages(), 0)),
		bytes:        int(max(response.GetMaxBytes(), 0)),
		requestBytes: int(min(response.GetMaxRequestBytes(), serverRequestBytes)),
	}
	if p.requestBytes <= 0 {
		p.requestBytes = defaultRequestBytes
	}
	if sends := response.GetMaxSends(); sends > 0 {
		p.slots = make(chan struct{}, min(sends, 1000))
	}
	return p
}

// enter waits for a place among the calls of Send.
func (p promised) enter(ctx context.Context) bool {
	if p.slots == nil {
		return ctx.Err() == nil
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p promised) leave() {
	if p.slots != nil {
		<-p.slots
	}
}

// remaining is what is left of a context's time, in milliseconds; 0 where there
// is no limit.
func remaining(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(millis(time.Until(deadline)), 1)
}

// said is what an error of a call says, without gRPC's words around it.
func said(err error) error {
	s, ok := status.FromError(err)
	switch {
	case !ok:
		return err
	case s.Code() == codes.Unimplemented:
		return errors.New("it doesn't know this call of the plug-in protocol")
	}
	return errors.New(shorten(s.Message(), maxDetail))
}
