package sinks_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// lasting returns a write that takes the duration d and ignores its context.
func lasting(d time.Duration) func(context.Context) []sinks.Outcome {
	return func(context.Context) []sinks.Outcome {
		time.Sleep(d) // in synctest's fake time
		return sinks.All(2, sinks.Ok("written"))
	}
}

func TestSerialRunsOneWriteAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		serial := sinks.NewSerial()
		start := time.Now()
		var sends sync.WaitGroup
		for range 3 {
			sends.Go(func() {
				if o := serial.Send(t.Context(), 2, lasting(time.Second)); o[1].Receipt != "written" {
					t.Errorf("outcomes %+v", o)
				}
			})
		}
		sends.Wait()
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("three writes of a second took %v", took)
		}
	})
}

func TestSerialReturnsWhenAWriteIsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		serial := sinks.NewSerial()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		o := serial.Send(ctx, 2, lasting(time.Minute))
		if len(o) != 2 || o[1].Result != sinks.Retry || o[1].Reason != sinks.ReasonTimeout || time.Since(start) > 2*time.Second {
			t.Errorf("outcomes %+v after %v", o, time.Since(start))
		}
		next, cancelNext := context.WithTimeout(t.Context(), time.Second)
		defer cancelNext()
		if o := serial.Send(next, 2, lasting(0)); len(o) != 2 || o[0].Result != sinks.Unsent || o[0].Reason != sinks.ReasonCancelled {
			t.Errorf("while a write was stuck: %+v", o)
		}
		if err := serial.Do(next, func() error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do while a write was stuck: %v", err)
		}
		if o := serial.Send(t.Context(), 2, lasting(0)); o[0].Result != sinks.Delivered {
			t.Errorf("after the stuck write: %+v", o)
		}
	})
}

func TestSerialReturnsTheOutcomesOfAWriteThatStopsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := sinks.NewSerial().Send(ctx, 1, func(ctx context.Context) []sinks.Outcome {
			<-ctx.Done()
			return sinks.All(1, sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "locked"))
		})
		if o[0].Detail != "locked" {
			t.Errorf("outcome %+v", o[0])
		}
	})
}

func TestSerialStartsNothingAfterTheContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := sinks.NewSerial().Send(ctx, 3, func(context.Context) []sinks.Outcome {
		t.Error("the write was started")
		return nil
	})
	if len(o) != 3 || o[2].Result != sinks.Unsent {
		t.Errorf("outcomes %+v", o)
	}
}
