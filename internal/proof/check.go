package proof

import (
	"cmp"
	"slices"
)

// Verdict is what a history shows.
type Verdict struct {
	Messages    int            `json:"messages"` // messages that were committed
	Faults      map[string]int `json:"faults"`   // by kind
	Symptoms    map[string]int `json:"symptoms"` // by kind
	Lost        int            `json:"lost"`
	Reordered   int            `json:"reordered"`
	Uncommitted int            `json:"uncommitted"` // arrivals of messages that were never committed
	Duplicates  int            `json:"duplicates"`
	Windows     map[string]int `json:"windows"` // duplicates by the window that explains them
	Outside     int            `json:"outside"` // duplicates outside all windows
	Fenced      int            `json:"fenced"`  // rows that a relay settled while it was fenced
	Parked      int            `json:"parked"`  // messages that were not delivered because they are parked
	Undone      int            `json:"undone"`  // commits that the database lost
}

// The windows of docs/semantics.md in which a message may be delivered again.
const (
	WindowKill       = "kill"        // the relay, or its connection to the database, died
	WindowLostAnswer = "lost_answer" // the destination's answer was lost
	WindowLostMarks  = "lost_marks"  // the database lost marks
	WindowTakeover   = "takeover"    // the relay was suspended, superseded or too late to renew its leases
	WindowClock      = "clock"       // the database's clock jumped
)

// message is what a history tells about one message.
type message struct {
	committed, rolledBack, undone bool
	row                           *Event
	first                         *Event
}

// checker collects what it reads in a history.
type checker struct {
	*History
	v        Verdict
	messages map[string]*message
	causes   []*Event       // faults and symptoms
	caused   map[*Event]int // duplicates for each fault
}

// Check judges a history.
func Check(h *History) Verdict {
	c := &checker{History: h, messages: map[string]*message{}, caused: map[*Event]int{}, v: Verdict{Faults: map[string]int{}, Symptoms: map[string]int{}, Windows: map[string]int{}}}
	for i := range h.Events {
		c.note(&h.Events[i])
	}
	c.checkArrivals()
	c.checkMessages()
	c.checkFences()
	return c.v
}

func (c *checker) of(id string) *message {
	m := c.messages[id]
	if m == nil {
		m = &message{}
		c.messages[id] = m
	}
	return m
}

func (c *checker) note(e *Event) {
	switch e.Event {
	case Wrote:
		m := c.of(e.ID)
		m.committed, m.rolledBack = m.committed || e.Outcome == Committed, m.rolledBack || e.Outcome == RolledBack
	case Row:
		m := c.of(e.ID)
		if m.row == nil || e.State != "done" { // a message of several sinks has several rows
			m.row = e
		}
	case Undone:
		c.of(e.ID).undone = true
	case Fault:
		c.causes = append(c.causes, e)
		c.v.Faults[e.Kind]++
	case Symptom:
		c.causes = append(c.causes, e)
		c.v.Symptoms[e.Kind]++
	}
}

// checkArrivals finds duplicates, and messages that arrived for the first time after a later message
// of their key.
func (c *checker) checkArrivals() {
	last := map[string]int{}
	for i := range c.Events {
		e := &c.Events[i]
		if e.Event != Arrived {
			continue
		}
		m := c.of(e.ID)
		switch {
		case m.first != nil:
			c.v.Duplicates++
			if window := c.explain(m, e); window != "" && !c.Exact {
				c.v.Windows[window]++
			} else {
				c.v.Outside++
			}
			continue
		case !m.committed && m.row == nil && !m.undone:
			c.v.Uncommitted++
		case c.Ordered && e.Key != "" && !m.undone:
			if e.Number <= last[e.Key] {
				c.v.Reordered++
			}
			last[e.Key] = e.Number
		}
		m.first = e
	}
}

// explain returns the window in which a message arrived again, or "".
func (c *checker) explain(m *message, again *Event) string {
	windows := map[string]string{
		RelayKilled: WindowKill, DatabaseCut: WindowKill, AnswerLost: WindowLostAnswer, Failover: WindowLostMarks, DatabaseKilled: WindowLostMarks,
		RelaySuspended: WindowTakeover, RelaySuperseded: WindowTakeover, LeaseLost: WindowTakeover, ClockJump: WindowClock,
	}
	var cause *Event
	for _, f := range c.causes {
		if windows[f.Kind] == "" || f.Relay != "" && f.Relay != m.first.Relay || again.At > 0 && f.At > again.At {
			continue
		}
		if cause == nil || f.At > cause.At {
			cause = f
		}
	}
	if cause != nil {
		c.caused[cause]++
		if cause.Kind != Failover && cause.Kind != DatabaseKilled && c.Unsettled > 0 && c.caused[cause] > c.Unsettled {
			return ""
		}
		return windows[cause.Kind]
	}
	if m.row != nil && (m.row.Attempts > 0 || m.row.Reason == "unknown" || m.row.Reason == "timeout") {
		return WindowLostAnswer
	}
	return ""
}

// checkMessages counts the committed messages, and those of them that never arrived.
func (c *checker) checkMessages() {
	for _, m := range c.messages {
		switch {
		case m.undone:
			c.v.Undone++
			continue
		case !m.committed && m.row == nil:
			continue
		}
		c.v.Messages++
		switch {
		case m.first != nil:
		case m.row != nil && m.row.State == "error":
			c.v.Parked++
		default:
			c.v.Lost++
		}
	}
}

// checkFences counts the rows that a relay settled after another relay had been seen on their lane
// with a higher fence.
func (c *checker) checkFences() {
	type lease struct {
		at    float64
		fence int64
		relay string
	}
	leases := map[int][]lease{}
	for _, e := range c.Events {
		if e.Event == Lane {
			leases[*e.Lane] = append(leases[*e.Lane], lease{e.At, e.Fence, e.Relay})
		}
	}
	for _, e := range c.Events {
		if e.Event != Row || e.State != "done" || e.Lane == nil || e.Relay == "" || e.At == 0 || c.Claim != "lanes" {
			continue
		}
		seen := leases[*e.Lane]
		next, _ := slices.BinarySearchFunc(seen, e.At, func(l lease, at float64) int { return cmp.Compare(l.at, at) })
		// Between two views of the same lease nobody else had the lane.
		if next > 0 && next < len(seen) && seen[next-1].fence == seen[next].fence && seen[next].relay != "" && seen[next].relay != e.Relay {
			c.v.Fenced++
		}
	}
}
