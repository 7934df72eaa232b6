package main

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/plugintest"
)

// Pub/Sub doesn't recognise repetitions, so after each kill the messages in flight may arrive twice. Two relays send
// batches of 200 messages.
func TestProof(t *testing.T) {
	s := newServer(t, "proof")
	plugintest.Prove(t, plugintest.Scene{
		Name: "pubsub", Config: map[string]string{"project": project}, Env: map[string]string{"PUBSUB_EMULATOR_HOST": s.address}, Received: s.received,
		KillServer: func() {
			s.stop()
			s.start()
		},
		Duplicates: 10 * 2 * 2 * 200,
	})
}
