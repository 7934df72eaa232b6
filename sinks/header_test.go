package sinks_test

import (
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
)

func TestReservedHeader(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"rowrelay-topic": true, "RowRelay-Anything": true, "rowrelay-": true, "rowrelay-dead-letter": true, "rowrelay-replayed-at": true,
		"rowrelay-dead-letter-reason": false, "Rowrelay-Dead-Letter-Reason": false, "rowrelay-replayed": false, "rowrelay": false, "x-rowrelay-topic": false, "": false,
	} {
		if got := sinks.ReservedHeader(name); got != want {
			t.Errorf("%q is reserved: %t, want %t", name, got, want)
		}
	}
}
