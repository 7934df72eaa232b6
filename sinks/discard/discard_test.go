package discard_test

import (
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(testing.TB) sinktest.Harness { return sinktest.Harness{Sink: discard.New()} })
}

func TestKind(t *testing.T) {
	t.Parallel()
	sinktest.Kind(t, discard.Kind(), map[string]any{})
}

func TestURL(t *testing.T) {
	t.Parallel()
	registry, err := sinks.NewRegistry(discard.Kind())
	if err != nil {
		t.Fatal(err)
	}
	for rawURL, good := range map[string]bool{
		"discard:": true, "discard://": true, "discard:x": false, "discard:?sync=1": false, "discard:///x": false, "discard://h": false, "discard:#x": false,
	} {
		if _, err := registry.FromURL(rawURL); (err == nil) != good {
			t.Errorf("FromURL(%q): %v", rawURL, err)
		}
	}
}
