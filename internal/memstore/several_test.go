package memstore_test

import (
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A row for three sinks is settled in parts: one sink delivers the message, one rejects it, and
// the settlement of the last sink settles the remaining row.
func TestSettleForSomeSinks(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	store := db.Store()
	fences := acquireAll(t, store, "r")
	id := db.Write(outbox.Message{Topic: "t"})[0]
	of := storage.Settlement{ID: id, Lane: int(id), MessageID: message(id), Fence: fences[int(id)]}
	steps := []struct {
		sinks, part, left string
		state             storage.State
		want              storage.Settled
	}{
		{"", "a", "b,c", storage.StateDone, storage.Settled{Changed: 1}},
		{"", "a", "b,c", storage.StateDone, storage.Settled{Missing: 1}},
		{"b,c", "c", "b", storage.StateError, storage.Settled{Changed: 1}},
		{"b", "", "", storage.StateDone, storage.Settled{Changed: 1}},
	}
	for _, step := range steps {
		s := of
		s.Sinks, s.For, s.Left, s.State = step.sinks, step.part, step.left, step.state
		if got, err := store.Settle(t.Context(), "r", true, []storage.Settlement{s}); err != nil || got != step.want {
			t.Fatalf("settle %s of %q: %+v, %v, want %+v", step.part, step.sinks, got, err, step.want)
		}
	}
	infos, err := store.List(t.Context(), storage.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, info := range infos {
		got = append(got, info.Sinks+" "+string(info.State))
	}
	if want := []string{"a done", "b done", "c error"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestSettleRefusesInvalidParts(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]storage.Settlement{
		"nothing left": {For: "a"},
		"for nobody":   {Left: "a"},
		"all left":     {Sinks: "a", For: "b", Left: "a"},
		"by rows":      {Token: "x", For: "a", Left: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.State = storage.StateDone
			if _, err := memstore.New().Store().Settle(t.Context(), "r", true, []storage.Settlement{s}); err == nil {
				t.Error("no error")
			}
		})
	}
}
