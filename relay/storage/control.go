package storage

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// ControlKind is the kind of a [Control]: a pause of a sink, topic, key or relay, or a sink's rate limit.
type ControlKind string

// The kinds of controls. All but LimitSink are pauses.
const (
	PauseSink  ControlKind = "sink"  // no message is sent to the sink
	PauseTopic ControlKind = "topic" // no message of the topic is sent; later messages of the same keys wait, whatever their topic
	PauseKey   ControlKind = "key"   // no message of the key is sent, whatever its topic or sink; only when claiming by lanes
	PauseRelay ControlKind = "relay" // the relay leaves its share of the messages to other relays, if any are alive
	LimitSink  ControlKind = "limit" // all relays together send the sink at most Rate messages a second
)

// Control is a pause or a rate limit that an operator has set for all relays of a table. It is in
// force until an operator lifts it or its end time passes. At most one control of each kind and name
// exists.
type Control struct {
	Kind   ControlKind `json:"kind"`
	Name   string      `json:"name"` // name of the sink, the topic or the relay; or the key
	Rate   int         `json:"rate,omitempty"`
	Ends   time.Time   `json:"ends,omitzero"` // zero if it stays in force until it is lifted
	By     string      `json:"by,omitempty"`  // the person who set it
	Since  time.Time   `json:"since"`
	Reason string      `json:"reason,omitempty"`
}

// String returns the kind and the name of the control.
func (c *Control) String() string { return string(c.Kind) + " " + c.Name }

// Maximum lengths of the texts of a control and an action, in bytes.
const (
	mostName   = 400
	mostReason = 255
	mostTarget = 1000
)

// Validate returns an error if the control is invalid.
func (c *Control) Validate() error {
	switch c.Kind {
	case PauseSink, PauseTopic, PauseKey, PauseRelay, LimitSink:
	default:
		return fmt.Errorf("invalid kind of control %q: must be sink, topic, key, relay or limit", c.Kind)
	}
	switch {
	case c.Name == "" || len(c.Name) > mostName:
		return fmt.Errorf("invalid name of a %s: must have 1 to %d bytes, has %d", c.Kind, mostName, len(c.Name))
	case c.Kind == LimitSink && c.Rate <= 0:
		return fmt.Errorf("invalid rate limit of %d messages a second: must be at least 1", c.Rate)
	case len(c.By) > mostReason || len(c.Reason) > mostReason:
		return fmt.Errorf("the operator and the reason must have at most %d bytes each", mostReason)
	}
	return nil
}

// Action is a record in the log of operator actions.
type Action struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	By      string    `json:"by,omitempty"`
	Action  string    `json:"action"` // such as pause, resume, requeue, discard
	Target  string    `json:"target,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Changed int64     `json:"changed"` // number of messages changed; -1 if the action is unfinished or was interrupted
}

// Controller is the part of an Operator that sets controls for the relays of a table and keeps the log
// of operator actions.
type Controller interface {
	// Controls returns the controls that are in force now, by the database's clock, ordered by kind and
	// name.
	Controls(ctx context.Context) ([]Control, error)

	// SetControl puts a control in force for the given duration, or until it is lifted if the duration
	// is 0. It replaces the control with the same kind and name. It ignores the times in the given
	// control. It writes an Action to the log in the same transaction.
	SetControl(ctx context.Context, control Control, lasts time.Duration) error

	// LiftControl removes the control of this kind and name, and reports whether it existed. If it did,
	// LiftControl writes an Action to the log in the same transaction, with the By and Reason of the given control.
	LiftControl(ctx context.Context, control Control) (bool, error)

	// BeginAction writes an Action to the log without a count; EndAction adds the count. BeginAction
	// ignores the action's ID, At and Changed.
	BeginAction(ctx context.Context, action Action) (id string, err error)
	EndAction(ctx context.Context, id string, changed int64) error

	// Actions returns at most limit actions of the log, the latest first.
	Actions(ctx context.Context, limit int) ([]Action, error)
}

// Set returns the Action to log when the control is set for the given duration.
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

// Lifted returns the Action to log when the control is lifted.
func (c *Control) Lifted() Action {
	action := Action{By: c.By, Action: "resume", Target: c.String(), Reason: c.Reason}
	if c.Kind == LimitSink {
		action.Action, action.Target = "unlimit", "sink "+c.Name
	}
	return action
}

// Fits returns the action with its texts cut to the lengths that the log can store.
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

// Logged returns an Operator that logs the changes that one person makes. For each kind of change, it
// writes one Action with the given target to the log, even if several calls make changes of that kind.
// Use it if the name of that person is known, as commands and web pages do. Its methods must not be
// called concurrently.
func Logged(operator Operator, by, reason, target string) Operator {
	return &logged{operator, Action{By: by, Reason: reason, Target: target}, map[string]*line{}}
}

type logged struct {
	Operator
	act   Action
	lines map[string]*line // by kind of change
}

// line is the logged Action of one kind of change: its id, and how many messages have been changed so
// far.
type line struct {
	id      string
	changed int64
}

// log writes the Action before the first change, because a change may take a long time and be interrupted.
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

// Describe returns the filter as one line of text for the log.
func (f *Filter) Describe() string {
	var text []string
	add := func(name, value string) {
		if value != "" {
			text = append(text, name+"="+value)
		}
	}
	add("topic", f.Topic)
	add("topic_prefix", f.TopicPrefix)
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
