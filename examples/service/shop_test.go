package main

import (
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/rowrelaytest"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// A test of a handler needs no database: the outbox table is in memory.
func TestReceiptsWithANegativeTotalAreParked(t *testing.T) {
	t.Parallel()
	table := rowrelaytest.NewOutbox()
	for _, o := range []order{{ID: 1, Total: 7}, {ID: 2, Total: -7}} {
		if err := table.Write(t.Context(), outbox.WithoutTransaction(nil), ordersTaken.Message(o.key(), o)); err != nil {
			t.Fatal(err)
		}
	}
	table.Deliver(t, map[string]inproc.Handler{string(ordersTaken): inproc.JSON(sendReceipt)})
	states := map[string]storage.State{}
	for _, m := range table.Messages(t) {
		states[m.Message.Key] = m.State
	}
	if states["order-1"] != storage.StateDone || states["order-2"] != storage.StateError {
		t.Errorf("the states are %v", states)
	}
}
