package storage

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// ControlKind is what a [Control] is about.
type ControlKind string

// The kinds of controls. All but LimitSink are pauses.
const (
	PauseSink  ControlKind = "sink"  // nothing is sent to it
	PauseTopic ControlKind = "topic" // none of its messages is sent, nor what comes after one in its key
	PauseKey   ControlKind = "key"   // none of its messages is sent, of whatever topic and to whatever sink; by lanes only
	PauseRelay ControlKind = "relay" // it leaves its part to others, if others live
	LimitSink  ControlKind = "limit" // all relays together send it no more than Rate messages a second
)

// Control is what an operator has put in force, for all relays of a table, until it is lifted
// or its time has come. There is one of a kind and name.
type Control struct {
	Kind   ControlKind `json:"kind"`
	Name   string      `json:"name"` // of the sink, the topic or the relay; or the key
	Rate   int         `json:"rate,omitempty"`
	Ends   time.Time   `json:"ends,omitzero"` // zero: when it is lifted
	By     string      `json:"by,omitempty"`  // who has put it in force
	Since  time.Time   `json:"since"`
	Reason string      `json:"reason,omitempty"`
}

// String names what the control is about.
func (c *Control) String() string { return string(c.Kind) + " " + c.Name }

// bounds of what a control and an action say, in bytes.
const (
	mostName   = 400
	mostReason = 255
	mostTarget = 1000
)

// Validate says what is wrong with a control.
func (c *Control) Validate() error {
	switch c.Kind {
	case PauseSink, PauseTopic, PauseKey, PauseRelay, LimitSink:
	default:
		return fmt.Errorf("%q is no kind of control: it is sink, topic, key, relay or limit", c.Kind)
	}
	switch {
	case c.Name == "" || len(c.Name) > mostName:
		return fmt.Errorf("a %s's name has 1 to %d bytes, and this one %d", c.Kind, mostName, len(c.Name))
	case c.Kind == LimitSink && c.Rate <= 0:
		return fmt.Errorf("a limit of %d messages a second: it has to be at least 1", c.Rate)
	case len(c.By) > mostReason || len(c.Reason) > mostReason:
		return fmt.Errorf("who has done it and the reason have at most %d bytes each", mostReason)
	}
	return nil
}

// Action is a line of the log of what operators have done.
type Action struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	By      string    `json:"by,omitempty"`
	Action  string    `json:"action"` // such as pause, resume, requeue, discard
	Target  string    `json:"target,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Changed int64     `json:"changed"` // so many; -1: it isn't over, or broke off
}

// Controller is the part of an Operator that steers the relays of a table, and that remembers
// who has done what.
type Controller interface {
	// Controls returns what is in force now, by the database's clock, by kind and name.
	Controls(ctx context.Context) ([]Control, error)

	// SetControl puts a control in force for so long, or until it is lifted where that is 0, in
	// the place of one of its kind and name. Its times are not looked at. It writes a line of the
	// log in the same transaction.
	SetControl(ctx context.Context, control Control, lasts time.Duration) error

	// LiftControl ends the control of this kind and name, and says whether there was one; then it
	// writes a line of the log in the same transaction. Who does it and why are the control's.
	LiftControl(ctx context.Context, control Control) (bool, error)

	// BeginAction writes a line of the log without a count; EndAction adds it. Of the
	// action, the id, the time and the count aren't looked at.
	BeginAction(ctx context.Context, action Action) (id string, err error)
	EndAction(ctx context.Context, id string, changed int64) error

	// Actions returns the log, the last action first, up to limit.
	Actions(ctx context.Context, limit int) ([]Action, error)
}

// Set is the line of the log about a control that is put in force.
func (c *Control) Set(lasts time.Duration) Action {
	action := Action{By: c.By, Action: "pause", Target: c.String(), Reason: c.Reason}
	if c.Kind == LimitSink {
		action.Action, action.Target = "limit", fmt.Sprintf("sink %s %d/s", c.Name, c.Rate)
	}
	if lasts > 0 {
		action.Target += " for " + lasts.Round(time.Second).String()
	}
	return action
}

// Lifted is the line of the log about a control that is lifted.
func (c *Control) Lifted() Action {
	action := Action{By: c.By, Action: "resume", Target: c.String(), Reason: c.Reason}
	if c.Kind == LimitSink {
		action.Action, action.Target = "unlimit", "sink "+c.Name
	}
	return action
}

// Fits returns an action whose texts are as long as the log has room for.
func (a Action) Fits() Action {
	cut := func(text string, most int) string {
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "")
		}
		return text
	}
	a.By, a.Target, a.Reason = cut(a.By, mostReason), cut(a.Target, mostTarget), cut(a.Reason, mostReason)
	return a
}

// Logged is an Operator for one act of somebody's: what it changes of messages, in however many
// calls, is one line of the log for each kind of change, about target. Command lines, pages and
// programs that show who they act for use it; its calls come one after the other.
func Logged(operator Operator, by, reason, target string) Operator {
	return &logged{operator, Action{By: by, Reason: reason, Target: target}, map[string]*line{}}
}

type logged struct {
	Operator
	act   Action
	lines map[string]*line // by what is done
}

// line is of the log: its id, and how many were changed so far.
type line struct {
	id      string
	changed int64
}

// log writes the line before the first change, as that may take long and break off.
func (l *logged) log(ctx context.Context, what string, change func() (int, error)) (int, error) {
	written := l.lines[what]
	if written == nil {
		action := l.act
		action.Action = what
		id, err := l.BeginAction(ctx, action)
		if err != nil {
			return 0, err
		}
		written = &line{id: id}
		l.lines[what] = written
	}
	changed, err := change()
	written.changed += int64(changed)
	if err != nil && written.changed == 0 {
		return 0, err
	}
	if endErr := l.EndAction(context.WithoutCancel(ctx), written.id, written.changed); err == nil {
		err = endErr
	}
	return changed, err
}

func (l *logged) Requeue(ctx context.Context, filter Filter) (int, error) {
	what := "requeue"
	if filter.State == StateRetry {
		what = "retry"
	}
	return l.log(ctx, what, func() (int, error) { return l.Operator.Requeue(ctx, filter) })
}

func (l *logged) Redirect(ctx context.Context, filter Filter, sink string) (int, error) {
	return l.log(ctx, "redirect", func() (int, error) { return l.Operator.Redirect(ctx, filter, sink) })
}

func (l *logged) Skip(ctx context.Context, filter Filter) (int, error) {
	return l.log(ctx, "skip", func() (int, error) { return l.Operator.Skip(ctx, filter) })
}

func (l *logged) Discard(ctx context.Context, filter Filter) (int, error) {
	return l.log(ctx, "discard", func() (int, error) { return l.Operator.Discard(ctx, filter) })
}

func (l *logged) Replay(ctx context.Context, was Replay, limit int) (is Replay, copies []RowID, err error) {
	_, err = l.log(ctx, "replay", func() (int, error) {
		is, copies, err = l.Operator.Replay(ctx, was, limit)
		return len(copies), err
	})
	return is, copies, err
}

// Describe is the filter in a line, as it is written to the log.
func (f *Filter) Describe() string {
	var text []string
	add := func(name, value string) {
		if value != "" {
			text = append(text, name+"="+value)
		}
	}
	add("topic", f.Topic)
	add("key", f.Key)
	add("sink", f.Sink)
	add("error", f.Error)
	if f.Holds {
		add("holds", "its key")
	}
	if !f.Since.IsZero() {
		add("since", f.Since.UTC().Format(time.RFC3339))
	}
	if f.Limit > 0 {
		add("limit", fmt.Sprint(f.Limit))
	}
	add("ids", strings.Join(f.IDs, ","))
	if len(text) == 0 {
		return "all"
	}
	return strings.Join(text, " ")
}
