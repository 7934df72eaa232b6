package backend

import (
	"context"
	"database/sql"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// ControlQueries are what operators put in force, and the log of what they have done. Those of
// which the arguments are named here get them in this order.
type ControlQueries struct {
	Controls    Query // kind, name, rate, when it ends, by whom, since when and why, of each that is in force
	ForgetEnded Query // deletes those that have ended
	Lift        Query // kind, name
	Set         Query // kind, name, rate, for how many microseconds (or NULL), by whom, why
	BeginAction Query // id, by whom, what, of what, why
	EndAction   Query // how many, id
	Actions     Query // id, when, by whom, what, of what, why and how many (or -1) of each, the last one first
}

// ControlStatements are those of a database's .sql, which have these names.
func ControlStatements(statements Statements) ControlQueries {
	return ControlQueries{
		Controls: statements.Query("controls in force"), ForgetEnded: statements.Query("forget ended controls"),
		Lift: statements.Query("lift control"), Set: statements.Query("set control"),
		BeginAction: statements.Query("begin action"), EndAction: statements.Query("end action"), Actions: statements.Query("log of actions"),
	}
}

// ReadControls reads what is in force.
func ReadControls(ctx context.Context, q Querier, ask ControlQueries) (controls []storage.Control, err error) {
	var c storage.Control
	var rate number
	var ends, since moment
	err = All(ctx, q, ask.Controls, func() {
		c.Rate, c.Ends, c.Since = int(rate), time.Time(ends), time.Time(since)
		controls = append(controls, c)
	}, (*text)(&c.Kind), (*text)(&c.Name), &rate, &ends, (*text)(&c.By), &since, (*text)(&c.Reason))
	return controls, err
}

// ReadActions reads the log, up to limit lines.
func ReadActions(ctx context.Context, q Querier, ask ControlQueries, limit int) (actions []storage.Action, err error) {
	err = Each(ctx, q, ask.Actions, func(rows *sql.Rows) (bool, error) {
		if len(actions) >= limit {
			return false, nil
		}
		var a storage.Action
		var at moment
		var changed number
		err := rows.Scan((*text)(&a.ID), &at, (*text)(&a.By), (*text)(&a.Action), (*text)(&a.Target), (*text)(&a.Reason), &changed)
		a.At, a.Changed = time.Time(at), int64(changed)
		actions = append(actions, a)
		return true, err
	})
	return actions, err
}

// with is a query with its arguments.
func (c ControlQueries) with(query Query, args ...any) Query {
	return Query{SQL: query.SQL, Args: args}
}

// Setting puts a control in force, in the place of one that there is.
func (c ControlQueries) Setting(control storage.Control, lasts time.Duration) []Query {
	var microseconds any
	if lasts > 0 {
		microseconds = lasts.Microseconds()
	}
	return []Query{
		c.ForgetEnded, c.with(c.Lift, string(control.Kind), control.Name),
		c.with(c.Set, string(control.Kind), control.Name, int64(control.Rate), microseconds, control.By, control.Reason),
	}
}

// Lifting ends a control.
func (c ControlQueries) Lifting(control storage.Control) []Query {
	return []Query{c.ForgetEnded, c.with(c.Lift, string(control.Kind), control.Name)}
}

// Beginning writes a line of the log.
func (c ControlQueries) Beginning(id string, action storage.Action) Query {
	return c.with(c.BeginAction, id, action.By, action.Action, action.Target, action.Reason)
}

// Ending adds to a line of the log how many were changed.
func (c ControlQueries) Ending(id string, changed int64) Query {
	return c.with(c.EndAction, changed, id)
}
