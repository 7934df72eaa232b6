package adopt

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

type sqlite struct{}

//go:embed sqlite.sql
var sqliteFile string

func (sqlite) file() string { return sqliteFile }

func (sqlite) quote(name string) string { return postgres{}.quote(name) }

func (sqlite) isBytes(typeName string) bool {
	return strings.Contains(strings.ToUpper(typeName), "BLOB")
}

func (sqlite) newID() string {
	return "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))"
}

func (sqlite) text(expression string, _ Column) string { return "CAST(" + expression + " AS TEXT)" }

// uuid also converts a column of 16 bytes.
func (s sqlite) uuid(expression string, column Column) string {
	if !s.isBytes(column.Type) {
		return s.text(expression, column)
	}
	part := func(from, size int) string { return fmt.Sprintf("substr(hex(%s), %d, %d)", expression, from, size) }
	return "lower(" + part(1, 8) + " || '-' || " + part(9, 4) + " || '-' || " + part(13, 4) + " || '-' || " + part(17, 4) + " || '-' || " + part(21, 12) + ")"
}

// headers converts the members to text, and leaves out members that are NULL. If whole is not JSON, headers returns it unchanged,
// so that the outbox refuses the message. The JSON value null means no headers.
func (sqlite) headers(whole string, members []Header) string {
	object := "json_object(" + join(members, ", ", func(h Header) string { return literal(h.Name) + ", " + h.Value }) + ")"
	switch {
	case whole == "":
		return "json_patch('{}', " + object + ")"
	case len(members) == 0:
		return "CASE WHEN json_valid(" + whole + ") THEN CASE WHEN json_type(" + whole + ") <> 'null' THEN json_patch('{}', " + whole + ") END ELSE " + whole + " END"
	default:
		return "CASE WHEN coalesce(json_valid(" + whole + "), 1) THEN json_patch(json_patch('{}', coalesce(" + whole + ", '{}')), " + object + ") ELSE " + whole + " END"
	}
}

// failed isn't used, because a trigger of SQLite can't catch an error.
func (sqlite) failed(string, Table) string { return "" }

func (s sqlite) name(a *Adoption, n *names) {
	n.TriggerName = "rowrelay_forward_" + a.Table.Name
	n.Trigger, n.Bare = a.inSchema("rowrelay_forward_"+a.Table.Name), s.quote(a.Table.Name)
}

func (s sqlite) describe(ctx context.Context, db *sql.DB, outbox dialect.Table, name string) (d described, err error) {
	schema, bare, qualified := strings.Cut(name, ".")
	if !qualified {
		schema, bare = "", name
	}
	if schema != outbox.Schema {
		return d, fmt.Errorf("the outbox is in another file, and a trigger can't write to another file")
	}
	d.outbox, d.table.Schema, d.table.Name = outbox, schema, bare
	var c Column
	var key, hidden int
	err = all(ctx, db, "SELECT name, type, NOT \"notnull\", hidden, coalesce(dflt_value, ''), pk FROM pragma_table_xinfo(?)", []any{bare}, func() {
		c.Generated = hidden > 1
		d.table.Columns = append(d.table.Columns, c)
		if key > 0 {
			d.table.Key = append(d.table.Key, c.Name)
		}
	}, &c.Name, &c.Type, &c.Nullable, &hidden, &c.Default, &key)
	if err != nil {
		return d, err
	}
	if len(d.table.Columns) == 0 {
		return d, fmt.Errorf("it doesn't exist")
	}
	if slices.Contains(d.table.names(), "message_key") && slices.Contains(d.table.names(), "claim_token") {
		return d, errOwn
	}
	if len(d.table.Key) == 0 {
		d.table.Key = []string{"rowid"}
	}
	var trigger string
	err = all(ctx, db, "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? ORDER BY name", []any{bare}, func() {
		if trigger == "rowrelay_forward_"+bare {
			d.placed.Way = Trigger
			return
		}
		d.table.Triggers = append(d.table.Triggers, trigger)
	}, &trigger)
	return d, err
}

func (sqlite) prepare(context.Context, *sql.Conn, *Adoption) error { return nil }

func (sqlite) batch(ctx context.Context, q queryer, a *Adoption, limit int) (moved int64, err error) {
	list, err := a.statements("batch", limit)
	if err != nil {
		return 0, err
	}
	for i, statement := range list {
		result, err := q.ExecContext(ctx, statement)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			if moved, err = result.RowsAffected(); err != nil {
				return 0, err
			}
		}
	}
	return moved, nil
}

func (s sqlite) switchOver(ctx context.Context, conn *sql.Conn, a *Adoption, rest func(context.Context, queryer) (bool, error)) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	done, err := rest(ctx, tx)
	if err == nil && done {
		err = a.execute(ctx, tx, "remove", "trigger")
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

func (s sqlite) undo(ctx context.Context, conn *sql.Conn, a *Adoption, look func(context.Context, queryer) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := a.execute(ctx, tx, "remove"); err != nil {
		return err
	}
	if err := look(ctx, tx); err != nil {
		return err
	}
	if err := a.execute(ctx, tx, "delete record"); err != nil {
		return err
	}
	return tx.Commit()
}
