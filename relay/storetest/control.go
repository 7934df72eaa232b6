package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func (w *worker) controls() (controls []storage.Control) {
	w.Helper()
	w.do("read the controls", func(ctx context.Context) (err error) {
		controls, err = w.store.Controls(ctx)
		return err
	})
	return controls
}

func (w *worker) control(c storage.Control, lasts time.Duration) {
	w.Helper()
	w.do("set a control", func(ctx context.Context) error { return w.store.SetControl(ctx, c, lasts) })
}

func (w *worker) actions(limit int) (actions []storage.Action) {
	w.Helper()
	w.do("read the log", func(ctx context.Context) (err error) {
		actions, err = w.store.Actions(ctx, limit)
		return err
	})
	return actions
}

// A control is visible to all relays until it is removed. Setting a control again replaces the one of
// the same kind and name. Controls are listed by kind and name. Names are compared as bytes.
func controlsAreKept(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	if got := a.controls(); len(got) != 0 {
		t.Fatalf("a new table has controls: %v", got)
	}
	before := a.beat(storage.ByLanes, long).Now
	put := []storage.Control{
		{Kind: storage.PauseKey, Name: "k €1", By: "ann@host", Reason: "as it's wrong"},
		{Kind: storage.LimitSink, Name: "kafka", Rate: 100},
		{Kind: storage.PauseRelay, Name: "relay-1"},
		{Kind: storage.PauseSink, Name: "Kafka"},
		{Kind: storage.PauseSink, Name: "kafka", By: "bob"},
		{Kind: storage.PauseTopic, Name: "kafka"},
	}
	for i := len(put) - 1; i >= 0; i-- {
		a.control(put[i], 0)
	}
	put[4].By, put[4].Reason, put[1].Rate = "eve", "again", 7
	a.control(put[4], 0)
	a.control(put[1], 0)
	lift := func(w *worker, c storage.Control, want bool) {
		t.Helper()
		w.do("lift a control", func(ctx context.Context) error {
			was, err := w.store.LiftControl(ctx, c)
			if err == nil && was != want {
				t.Errorf("removing %v returned %v, want %v", c, was, want)
			}
			return err
		})
	}
	check := func(want ...storage.Control) {
		t.Helper()
		got := b.controls()
		if len(got) != len(want) {
			t.Fatalf("controls %v, want %v", got, want)
		}
		for i, c := range got {
			if c.Since.Before(before.Add(-time.Minute)) || c.Since.After(before.Add(time.Minute)) || !c.Ends.IsZero() {
				t.Errorf("%v was set at %v and ends at %v; want one set at about %v that doesn't end", &c, c.Since, c.Ends, before)
			}
			if c.Since = want[i].Since; c != want[i] {
				t.Errorf("control %d is %+v, want %+v", i, c, want[i])
			}
		}
	}
	check(put...)
	lift(b, storage.Control{Kind: storage.PauseSink, Name: "kafka", By: "bob"}, true)
	lift(b, storage.Control{Kind: storage.PauseSink, Name: "kafka"}, false)
	lift(b, storage.Control{Kind: storage.PauseSink, Name: "KAFKA"}, false)
	check(put[0], put[1], put[2], put[3], put[5])
}

// A control ends at its end time, on the database's clock. A control that replaces another one has
// its own end time.
func controlsEnd(t testing.TB, table Table) {
	a := hire(t, table, "a")
	lasting := storage.Control{Kind: storage.PauseTopic, Name: "lasting"}
	a.control(lasting, 0)
	brief := storage.Control{Kind: storage.PauseSink, Name: "brief"}
	a.control(brief, long)
	if got := a.controls(); len(got) != 2 || got[0].Ends.Sub(got[0].Since).Round(time.Second) != long || !got[1].Ends.IsZero() {
		t.Fatalf("controls %+v, want one that ends after %v and one that doesn't", got, long)
	}
	a.control(brief, short)
	eventually(t, "a control ends at its end time", func() bool {
		got := a.controls()
		return len(got) == 1 && got[0].Name == lasting.Name
	})
	a.do("lift a control", func(ctx context.Context) error {
		was, err := a.store.LiftControl(ctx, brief)
		if was {
			t.Error("LiftControl returned true for a control that had already ended")
		}
		return err
	})
	for _, wrong := range []storage.Control{{Kind: "tpoic", Name: "a"}, {Kind: storage.PauseSink}, {Kind: storage.LimitSink, Name: "a"}} {
		if err := a.store.SetControl(t.Context(), wrong, 0); err == nil {
			t.Errorf("the invalid control %+v was set", wrong)
		}
	}
	if got := a.controls(); len(got) != 1 {
		t.Errorf("controls %v, want one", got)
	}
}

// The action log has an entry for each change of a control. If messages are changed through
// storage.Logged, it also has an entry for each kind of change. The log lists the latest entry first.
func actionsAreLogged(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.control(storage.Control{Kind: storage.PauseSink, Name: "s", By: "ann", Reason: "why"}, 90*time.Minute)
	a.do("lift", func(ctx context.Context) error {
		_, err := a.store.LiftControl(ctx, storage.Control{Kind: storage.PauseSink, Name: "s", By: "bob", Reason: "done"})
		return err
	})
	a.do("lift nothing", func(ctx context.Context) error {
		_, err := a.store.LiftControl(ctx, storage.Control{Kind: storage.PauseSink, Name: "s", By: "bob"})
		return err
	})
	a.control(storage.Control{Kind: storage.LimitSink, Name: "s", Rate: 9}, 0)
	a.do("begin", func(ctx context.Context) error {
		_, err := a.store.BeginAction(ctx, storage.Action{By: "eve", Action: "discard", Target: "all"})
		return err
	})
	for range 2 {
		write(t, table, outbox.Message{Topic: "t", Key: "k"})
	}
	for _, row := range a.pending() {
		a.mustSettle(a.as(storage.StateError, row))
	}
	filter := storage.Filter{Topic: "t", Limit: 1}
	logged := storage.Logged(a.store, "cy", "mended", filter.Describe())
	for _, want := range []int{1, 1, 0} { // the log has one entry for the three calls
		a.do("requeue", func(ctx context.Context) error {
			n, err := logged.Requeue(ctx, filter)
			if err == nil && n != want {
				t.Errorf("requeued %d, want %d", n, want)
			}
			return err
		})
	}
	want := []storage.Action{
		{By: "cy", Action: "requeue", Target: "topic=t limit=1", Reason: "mended", Changed: 2},
		{By: "eve", Action: "discard", Target: "all", Changed: -1},
		{Action: "limit", Target: "sink s 9/s", Changed: 1},
		{By: "bob", Action: "resume", Target: "sink s", Reason: "done", Changed: 1},
		{By: "ann", Action: "pause", Target: "sink s for 1h30m0s", Reason: "why", Changed: 1},
	}
	got := a.actions(plenty)
	if len(got) != len(want) {
		t.Fatalf("the log is %+v, want %+v", got, want)
	}
	for i, action := range got {
		if action.ID == "" || action.At.IsZero() || i > 0 && action.At.After(got[i-1].At) {
			t.Errorf("entry %d of the log has the id %q and the time %v; the entry before it has the time %v", i, action.ID, action.At, got[max(0, i-1)].At)
		}
		if action.ID, action.At = "", (time.Time{}); action != want[i] {
			t.Errorf("entry %d of the log is %+v, want %+v", i, action, want[i])
		}
	}
	if got := a.actions(2); len(got) != 2 || got[0].By != "cy" {
		t.Errorf("the latest two entries of the log are %+v", got)
	}
}
