package plugins_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

const password = "pass/word+1"

// The suite runs against the plug-in, for each order that the plug-in's sink may
// promise.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "prefix", "atomic"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(t testing.TB) sinktest.Harness {
				d := newDestination(t)
				return sinktest.Harness{
					Sink: toDestination(t, d, order), Received: d.received, Stall: d.stall, Answer: d.answer,
					Break:   func() { d.set(func() { d.down = true }) },
					Repair:  func() { d.set(func() { d.down = false }) },
					Secrets: []string{password, "pass%2Fword%2B1"},
				}
			})
		})
	}
}

// During the outage, the plug-in is killed and its program is missing.
func TestConformanceProcessGone(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		d := newDestination(t)
		o := remoteOptions(t, d, "prefix")
		program := o.Path
		o.Path = filepath.Join(t.TempDir(), "program")
		repair := func() { check(t, os.Symlink(program, o.Path)) }
		repair()
		sink := newSink(t, o)
		return sinktest.Harness{
			Sink: sink, Received: d.received, Stall: d.stall, Answer: d.answer,
			Break: func() {
				check(t, os.Remove(o.Path))
				if pid := sink.PID(); pid != 0 {
					check(t, syscall.Kill(pid, syscall.SIGKILL))
				}
			},
			Repair:  repair,
			Secrets: []string{password},
		}
	})
}

func remoteOptions(t testing.TB, d *destination, order string) plugins.Options {
	t.Helper()
	o := options(t, "remote")
	o.Config = map[string]string{"url": d.url, "order": order}
	o.Secrets = map[string]settings.Secret{"password": password}
	return o
}

func toDestination(t testing.TB, d *destination, order string) *plugins.Sink {
	t.Helper()
	return newSink(t, remoteOptions(t, d, order))
}

func newSink(t testing.TB, o plugins.Options) *plugins.Sink {
	t.Helper()
	sink, err := plugins.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// batch returns a message for each key.
func batch(keys ...string) []sinks.Message {
	messages := make([]sinks.Message, len(keys))
	for i, key := range keys {
		messages[i] = sinks.Message{
			Message:  outbox.Message{ID: fmt.Sprint("message-", i), Topic: "t", Key: key, Payload: []byte("payload")},
			Sequence: int64(i), Attempt: 1,
		}
	}
	return messages
}
