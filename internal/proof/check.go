package proof

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Verdict has the results of checking a history. docs/proof.md has the rules.
type Verdict struct {
	Messages    int            `json:"messages"`    // committed messages, except those whose commit the database lost
	Faults      map[string]int `json:"faults"`      // by kind
	Symptoms    map[string]int `json:"symptoms"`    // by kind
	Lost        int            `json:"lost"`        // messages that never arrived and don't count as Kept
	Reordered   int            `json:"reordered"`   // messages that first arrived after a later message of their key
	Uncommitted int            `json:"uncommitted"` // arrivals of messages that were not committed
	Duplicates  int            `json:"duplicates"`  // arrivals of messages that had arrived before
	Windows     map[string]int `json:"windows"`     // duplicates by the window that explains them
	Outside     int            `json:"outside"`     // duplicates outside all windows
	Fenced      int            `json:"fenced"`      // messages that a relay marked as done while another relay held their lane
	Owned       int            `json:"owned"`       // messages marked as done by the relay that, according to the history, held their lane
	Kept        int            `json:"kept"`        // messages that never arrived and are parked or scheduled for later
	Undone      int            `json:"undone"`      // messages whose commit the database lost
}

// Holds reports whether the history meets all guarantees of docs/semantics.md.
func (v Verdict) Holds() bool {
	return v.Lost+v.Reordered+v.Uncommitted+v.Outside+v.Fenced == 0
}

// The windows of docs/semantics.md in which a message may be delivered again.
const (
	WindowKill       = "kill"        // the relay died, or lost its connection to the database
	WindowLostAnswer = "lost_answer" // the destination's answer was lost
	WindowLostMarks  = "lost_marks"  // the database lost marks
	WindowTakeover   = "takeover"    // the relay was suspended or superseded, or renewed its leases too late
	WindowClock      = "clock"       // the database's clock jumped
)

// reach is a number of seconds. An event explains a duplicate only if the message's earlier arrival was at most reach seconds later than
// the event. The arrival can be later than the event because requests in flight still arrive, and because a relay sends until it notices
// that it has lost its database.
const reach = 60

// message has the events of a history that belong to one message.
type message struct {
	committed, rolledBack, undone bool
	rows                          []*Event // several if the message has several sinks
	arrivals                      []*Event
}

func (m *message) isCommitted() bool {
	return m.committed || len(m.rows) > 0 && !m.rolledBack
}

// checker collects the messages, lanes and causes of a history.
type checker struct {
	*History
	v        Verdict
	messages map[string]*message
	relays   map[string]bool // the relays that sent messages
	causes   []*cause        // the latest first
}

// cause is a fault or symptom that may cause duplicates.
type cause struct {
	*Event
	window string
	limit  int // the maximum number of duplicates that it may cause; 0: no limit
	caused int
}

// Check judges a history. It returns an error if the history contradicts its format.
func Check(h *History) (Verdict, error) {
	c := &checker{History: h, messages: map[string]*message{}, relays: map[string]bool{}}
	c.v = Verdict{Faults: map[string]int{}, Symptoms: map[string]int{}, Windows: map[string]int{}}
	for i := range h.Events {
		if err := c.read(&h.Events[i]); err != nil {
			return Verdict{}, fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	c.findCauses()
	c.checkArrivals()
	c.checkMessages()
	c.checkFences()
	return c.v, nil
}

func (c *checker) of(id string) *message {
	m := c.messages[id]
	if m == nil {
		m = &message{}
		c.messages[id] = m
	}
	return m
}

func (c *checker) read(e *Event) error {
	switch e.Event {
	case Wrote:
		m := c.of(e.ID)
		m.committed, m.rolledBack = m.committed || e.Outcome == Committed, m.rolledBack || e.Outcome == RolledBack
	case Row:
		m := c.of(e.ID)
		m.rows = append(m.rows, e)
	case Undone:
		c.of(e.ID).undone = true
	case Arrived:
		c.relays[e.Relay] = true
	case Fault:
		c.v.Faults[e.Kind]++
	case Symptom:
		c.v.Symptoms[e.Kind]++
	case Lane:
		if e.Lane == nil {
			return fmt.Errorf("an event of the kind lane names no lane")
		}
	default:
		return fmt.Errorf("unknown event %q", e.Event)
	}
	return nil
}

// windowOf returns the window that a fault or symptom opens, or "" if it opens no window.
func windowOf(kind string) string {
	switch {
	case kind == RelayKilled, kind == DatabaseCut:
		return WindowKill
	case kind == AnswerLost:
		return WindowLostAnswer
	case kind == ClockJump:
		return WindowClock
	case kind == Failover, strings.HasPrefix(kind, "database_"):
		return WindowLostMarks
	case kind == LeaseLost, strings.HasPrefix(kind, "relay_"):
		return WindowTakeover
	default: // a broker's fault is a cause only if an answer was lost
		return ""
	}
}

func (c *checker) findCauses() {
	for i := range c.Events {
		e := &c.Events[i]
		if e.Event != Fault && e.Event != Symptom {
			continue
		}
		found := &cause{Event: e, window: windowOf(e.Kind)}
		switch found.window {
		case "":
			continue
		case WindowKill, WindowTakeover:
			found.limit = c.Unsettled
			if e.Relay == "" {
				found.limit *= len(c.relays)
			}
		}
		c.causes = append(c.causes, found)
	}
	slices.SortStableFunc(c.causes, func(a, b *cause) int { return cmp.Compare(b.At, a.At) })
}

// checkArrivals finds duplicates, and messages that first arrived after a later message of their key.
func (c *checker) checkArrivals() {
	last := map[string]int{}
	for i := range c.Events {
		e := &c.Events[i]
		if e.Event != Arrived {
			continue
		}
		m := c.of(e.ID)
		switch {
		case len(m.arrivals) > 0:
			c.checkDuplicate(m, e)
		case m.undone:
		case !m.isCommitted():
			c.v.Uncommitted++
		case c.Ordered && e.Key != "":
			if e.Number <= last[e.Key] {
				c.v.Reordered++
			}
			last[e.Key] = max(last[e.Key], e.Number)
		}
		m.arrivals = append(m.arrivals, e)
	}
}

func (c *checker) checkDuplicate(m *message, again *Event) {
	c.v.Duplicates++
	if window := c.explain(m, again); window != "" {
		c.v.Windows[window]++
	} else {
		c.v.Outside++
	}
}

// explain returns the window in which a message arrived again, or "" if no window explains it. It
// chooses the latest cause that explains the arrival and has not reached its limit. If there is
// no such cause, a failed attempt of the message counts as a lost answer.
func (c *checker) explain(m *message, again *Event) string {
	if c.Exact {
		return ""
	}
	for _, found := range c.causes {
		if found.limit > 0 && found.caused == found.limit || !found.explains(m, again) {
			continue
		}
		found.caused++
		return found.window
	}
	if slices.ContainsFunc(m.rows, func(row *Event) bool { return row.Attempts > 0 || row.Reason == "unknown" || row.Reason == "timeout" }) {
		return WindowLostAnswer
	}
	return ""
}

// explains reports whether the cause explains that the message arrived again. The message must have an
// earlier arrival, at most reach seconds later than the cause, and the cause must have hit the relay
// of that arrival. A cause other than a lost answer may also have hit the relay of the later arrival,
// because a dead relay's request may arrive after the request of its successor. If a relay was killed,
// the two arrivals must be from different relays, because a killed relay sends nothing again.
func (c *cause) explains(m *message, again *Event) bool {
	if again.At > 0 && c.At > again.At {
		return false
	}
	return slices.ContainsFunc(m.arrivals, func(a *Event) bool {
		inTime := a.At == 0 || a.At <= c.At+reach
		possible := c.Kind != RelayKilled || a.Relay != again.Relay
		hit := c.Relay == "" || c.Relay == a.Relay || c.Relay == again.Relay && c.window != WindowLostAnswer
		return inTime && possible && hit
	})
}

// checkMessages counts the committed messages, and the committed messages that never arrived.
func (c *checker) checkMessages() {
	for m := range maps.Values(c.messages) {
		switch {
		case m.undone:
			c.v.Undone++
			continue
		case !m.isCommitted():
			continue
		}
		c.v.Messages++
		switch {
		case len(m.arrivals) > 0:
		case slices.ContainsFunc(m.rows, func(row *Event) bool { return row.State == "error" || row.State == "scheduled" }):
			c.v.Kept++
		default:
			c.v.Lost++
		}
	}
}

// checkFences examines each done message that was marked between two consecutive Lane events of its
// lane. If both events show the same lease, only the relay that held this lease may have marked the
// message.
func (c *checker) checkFences() {
	views := map[int][]*Event{}
	for i := range c.Events {
		if e := &c.Events[i]; e.Event == Lane {
			views[*e.Lane] = append(views[*e.Lane], e)
		}
	}
	for _, of := range views {
		slices.SortStableFunc(of, func(a, b *Event) int { return cmp.Compare(a.At, b.At) })
	}
	for i := range c.Events {
		e := &c.Events[i]
		if c.Claim != "lanes" || e.Event != Row || e.State != "done" || e.Lane == nil || e.Relay == "" || e.At == 0 {
			continue
		}
		of := views[*e.Lane]
		next, _ := slices.BinarySearchFunc(of, e.At, func(view *Event, at float64) int { return cmp.Compare(view.At, at) })
		if next == 0 || next == len(of) || of[next-1].Fence != of[next].Fence || of[next-1].Relay != of[next].Relay || of[next].Relay == "" {
			continue
		}
		if of[next].Relay == e.Relay {
			c.v.Owned++
		} else {
			c.v.Fenced++
		}
	}
}
