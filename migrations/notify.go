package migrations

import (
	"context"
	"fmt"
	"strings"
	"text/template"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// notifySQL has the statements for the trigger. Each field is named like its template in the
// database's file.
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

// Notifies reports whether the trigger of Options.Notify exists. With this trigger, plain INSERTs
// notify listening relays. Notifies changes nothing. It returns false if the database has no
// notifications or the table doesn't exist.
func (m *Migrations) Notifies(ctx context.Context) (there bool, err error) {
	if err := m.notMade(); err != nil {
		return false, err
	}
	if m.schema.Notify == "" || m.set == inboxSet {
		return false, nil
	}
	if err := m.db.QueryRowContext(ctx, m.notify.there).Scan(&there); err != nil {
		return false, fmt.Errorf("look for the notify trigger of table %s: %w", m.table, err)
	}
	return there, nil
}

// setNotify creates or drops the trigger. If the trigger already exists, setNotify replaces
// only its function, because creating the trigger again would wait for all writers.
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
