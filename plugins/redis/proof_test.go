package main

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/plugintest"
	"github.com/rowrelay/rowrelay/outbox"
)

// TestProof kills plug-ins, relays and the server. With a duplicate window, no message is added twice. Without one, each
// kill repeats at most four batches of 200 messages: two that a relay has in flight, and two that it has not recorded.
func TestProof(t *testing.T) {
	for name, test := range map[string]struct {
		window     string
		duplicates int
	}{
		"duplicate window":    {"1h", 0},
		"no duplicate window": {"0s", 10 * 4 * 200},
	} {
		t.Run(name, func(t *testing.T) {
			p := newServer(t)
			plugintest.Prove(t, plugintest.Scene{
				Name: "redis", Duplicates: test.duplicates, Received: func() []outbox.Message { return p.received("proof") },
				KillServer: func() { p.stop(); p.start() },
				Config:     map[string]string{"addresses": p.address, "duplicate_window": test.window},
				Secrets:    map[string]string{"password": password},
			})
		})
	}
}
