package migrations

import (
	"context"
	"fmt"
	"strings"
	"text/template"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// notifySQL has the statements of the trigger, by the names that the database's file gives them.
type notifySQL struct{ function, trigger, drop, there string }

func renderNotify(file string, table dialect.Table) (sql notifySQL, err error) {
	if file == "" {
		return notifySQL{}, nil
	}
	parsed, err := template.New("").Parse(file)
	if err != nil {
		return notifySQL{}, fmt.Errorf("parse the SQL of the trigger: %w", err)
	}
	for name, to := range map[string]*string{"function": &sql.function, "trigger": &sql.trigger, "drop": &sql.drop, "there": &sql.there} {
		var text strings.Builder
		if err := parsed.ExecuteTemplate(&text, name, table); err != nil {
			return notifySQL{}, fmt.Errorf("render the SQL of the trigger: %w", err)
		}
		*to = text.String()
	}
	return sql, nil
}

// Notifies says whether plain INSERTs tell listening relays, by the trigger that
// Options.Notify has made. It changes nothing, and is false where the database has no
// notifications or there is no table.
func (m *Migrations) Notifies(ctx context.Context) (there bool, err error) {
	if err := m.notMade(); err != nil {
		return false, err
	}
	if m.schema.Notify == "" || m.set == inboxSet {
		return false, nil
	}
	if err := m.db.QueryRowContext(ctx, m.notify.there).Scan(&there); err != nil {
		return false, fmt.Errorf("look for the trigger of table %s: %w", m.table, err)
	}
	return there, nil
}

// setNotify makes the trigger, or drops it. One that is there is left in place, as to make it anew
// would wait for all writers; its function is replaced by this release's.
func (m *Migrations) setNotify(ctx context.Context) error {
	if m.options.Notify == "off" {
		_, err := m.db.ExecContext(ctx, m.notify.drop)
		return err
	}
	if _, err := m.db.ExecContext(ctx, m.notify.function); err != nil {
		return err
	}
	there, err := m.Notifies(ctx)
	if err == nil && !there {
		_, err = m.db.ExecContext(ctx, m.notify.trigger)
	}
	return err
}
