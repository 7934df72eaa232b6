package backend

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// This file reads and changes the state that concerns the whole table: the claim mode, the controls, and the log of
// actions.

// ChangeMode changes the claim mode in the transaction tx, if the table has another mode. Even if the mode
// stays the same, it creates missing indexes for claiming by rows, or drops them if the mode is claiming by
// lanes. It fails with storage.ErrOtherClaim while a relay with the other mode is alive. Its last argument is
// the query that stores the new mode. The other statements are in each database's .sql file under the names
// that ChangeMode uses. If one of them is missing, backendtest.Golden panics, except for "lock lanes", which a
// database needs only if the rows of all lanes must be locked before the leases are changed.
//
// ChangeMode removes the state of the other mode. It ends leases and increases their fences. It deletes the lanes' marks,
// because rows may have returned to the table with ids below them. It ends claims, because no relay would free them. It ends
// the holds of parked rows on their keys. If an operator wanted a row skipped or discarded, the row is parked again.
func ChangeMode(ctx context.Context, tx *sql.Tx, statements Statements, d dialect.Dialect, table dialect.Table, claim storage.Claim, set Query) error {
	var stored storage.Claim
	if err := One(ctx, tx, statements.Query("lock claim mode"), &stored); err != nil {
		return err
	}
	if stored != claim {
		var others []string
		var name string
		if err := All(ctx, tx, statements.Query("relays that claim another way", string(claim)), func() { others = append(others, name) }, &name); err != nil {
			return err
		}
		if len(others) > 0 {
			return fmt.Errorf("%w: by %s, and these relays are alive: %s; stop them first, or start this relay with the same claim mode",
				storage.ErrOtherClaim, stored, strings.Join(others, ", "))
		}
		if _, err := Exec(ctx, tx, set); err != nil {
			return err
		}
		if stored != "" {
			forget := []Query{statements.Query("forget leases"), statements.Query("forget claims"), statements.Query("forget holds")}
			if _, locks := statements["lock lanes"]; locks {
				forget = append([]Query{statements.Query("lock lanes")}, forget...)
			}
			if _, err := Exec(ctx, tx, forget...); err != nil {
				return err
			}
		}
	}

	var there int // the number of existing indexes for claiming by rows
	if err := One(ctx, tx, d.RowIndexes(table), &there); err != nil {
		return err
	}
	var queries []Query
	why := ""
	switch {
	case claim == storage.ByRows && there < dialect.RowIndexCount:
		queries, why = d.MakeRowIndexes(table), "claiming by rows needs indexes"
	case claim == storage.ByLanes && there > 0:
		queries, why = d.DropRowIndexes(table), "claiming by lanes needs no indexes"
	}
	if _, err := Exec(ctx, tx, queries...); err != nil {
		if d.Denied(err) {
			return fmt.Errorf("%s, and this user may not change them (%w); have the table's owner run: %s", why, err, script(queries))
		}
		return err
	}
	return nil
}

func script(queries []Query) string {
	var text strings.Builder
	for _, query := range queries {
		text.WriteString(query.SQL + "; ")
	}
	return strings.TrimSpace(text.String())
}

// ReadControls reads the controls in force.
func ReadControls(ctx context.Context, q Querier, statements Statements) (controls []storage.Control, err error) {
	var c storage.Control
	var rate number
	var ends, since moment
	err = All(ctx, q, statements.Query("controls in force"), func() {
		c.Rate, c.Ends, c.Since = int(rate), time.Time(ends), time.Time(since)
		controls = append(controls, c)
	}, (*text)(&c.Kind), (*text)(&c.Name), &rate, &ends, (*text)(&c.By), &since, (*text)(&c.Reason))
	return controls, err
}

// ReadActions reads at most limit actions of the log.
func ReadActions(ctx context.Context, q Querier, statements Statements, limit int) (actions []storage.Action, err error) {
	err = Each(ctx, q, statements.Query("log of actions"), func(rows *sql.Rows) (bool, error) {
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

// Setting returns the statements that put a control in force. The statements replace any control of the same kind
// and name.
func (s Statements) Setting(control storage.Control, lasts time.Duration) []Query {
	var microseconds any
	if lasts > 0 {
		microseconds = lasts.Microseconds()
	}
	return []Query{
		s.Query("forget ended controls"),
		s.Query("lift control", string(control.Kind), control.Name),
		s.Query("set control", string(control.Kind), control.Name, int64(control.Rate), microseconds, control.By, control.Reason),
	}
}

// Lifting returns the statements that end a control.
func (s Statements) Lifting(control storage.Control) []Query {
	return []Query{s.Query("forget ended controls"), s.Query("lift control", string(control.Kind), control.Name)}
}

// Beginning returns the statement that writes an action to the log.
func (s Statements) Beginning(id string, action storage.Action) Query {
	return s.Query("begin action", id, action.By, action.Action, action.Target, action.Reason)
}

// Ending returns the statement that writes the number of changed messages to an action of the log.
func (s Statements) Ending(id string, changed int64) Query {
	return s.Query("end action", changed, id)
}
