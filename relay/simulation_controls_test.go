package relay_test

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// operators is the number of operators that set controls concurrently in a history.
const operators = 2

// steer pauses, limits and resumes random sinks, topics, keys and relays until the given time. No control lasts longer than
// that.
func (w *world) steer(end time.Time) {
	table := w.db.Store()
	for {
		w.nap(10 * time.Second)
		lasts := min(w.span(20*time.Second)+time.Millisecond, time.Until(end))
		if lasts <= 0 {
			return
		}
		c := w.control()
		if err := table.SetControl(context.Background(), c, lasts); err != nil {
			w.problem("set %s: %v", c.String(), err)
		}
		if w.pick(2) == 0 { // the other controls end after their duration
			time.Sleep(w.span(lasts))
			if _, err := table.LiftControl(context.Background(), c); err != nil {
				w.problem("lift %s: %v", c.String(), err)
			}
		}
	}
}

// control returns a random control. It pauses topics most often, because a pause of a topic must also hold back the later
// messages of its keys.
func (w *world) control() storage.Control {
	pick := func(names ...string) string { return names[w.pick(len(names))] }
	topics := []string{"a.1", "a.2", "b.1", "c.1", "c.2"}
	if w.course.several {
		topics = append(topics, "d.1", "d.2")
	}
	switch w.pick(10) {
	case 0:
		return storage.Control{Kind: storage.PauseSink, Name: pick("a", "b", "c")}
	case 1:
		return storage.Control{Kind: storage.LimitSink, Name: pick("a", "b", "c"), Rate: 1 + w.pick(50)}
	case 2:
		return storage.Control{Kind: storage.PauseKey, Name: pick(w.course.keys...)}
	case 3:
		status, err := w.db.Store().Status(context.Background())
		if err == nil && len(status.Relays) > 0 {
			return storage.Control{Kind: storage.PauseRelay, Name: status.Relays[w.pick(len(status.Relays))].Name}
		}
	}
	return storage.Control{Kind: storage.PauseTopic, Name: pick(topics...)}
}
