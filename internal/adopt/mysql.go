package adopt

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// mysql is MySQL or MariaDB.
type mysql struct{}

//go:embed mysql.sql
var mysqlFile string

func (mysql) file() string { return mysqlFile }

func (mysql) quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (mysql) isBytes(typeName string) bool {
	return strings.Contains(typeName, "blob") || strings.Contains(typeName, "binary")
}

func (mysql) newID() string { return "uuid()" }

func (mysql) text(expression string, _ Column) string { return expression }

// uuid also converts a column of 16 bytes. MariaDB has no function for this.
func (m mysql) uuid(expression string, column Column) string {
	if !m.isBytes(column.Type) {
		return expression
	}
	return "lower(insert(insert(insert(insert(hex(" + expression + "), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-'))"
}

// headers converts the members to text, and leaves out members that are NULL. If whole is not JSON, headers returns it unchanged,
// so that the outbox refuses the message. The JSON value null means no headers.
func (mysql) headers(whole string, members []Header) string {
	object := "json_object(" + join(members, ", ", func(h Header) string { return literal(h.Name) + ", concat(" + h.Value + ")" }) + ")"
	switch {
	case whole == "":
		return "json_merge_patch('{}', " + object + ")"
	case len(members) == 0:
		return "CASE WHEN json_valid(" + whole + ") THEN CASE WHEN json_type(" + whole + ") <> 'NULL' THEN json_merge_patch('{}', " + whole + ") END ELSE " + whole + " END"
	default:
		return "CASE WHEN coalesce(json_valid(" + whole + "), 1) THEN json_merge_patch(json_merge_patch('{}', coalesce(" + whole + ", '{}')), " + object + ") ELSE " + whole + " END"
	}
}

func (m mysql) failed(column string, table Table) string {
	switch column {
	case "topic":
		return "''"
	case "payload", "payload_text":
		return "json_object(" + join(table.Columns, ", ", func(c Column) string {
			value := "NEW." + m.quote(c.Name)
			if m.isBytes(c.Type) {
				value = "hex(" + value + ")"
			}
			return literal(c.Name) + ", " + value
		}) + ")"
	}
	return "NULL"
}

func (m mysql) name(a *Adoption, n *names) {
	name := shortened("rowrelay_forward_" + a.Table.Name)
	n.TriggerName = name
	n.Trigger, n.Marker = a.inSchema(name), a.inSchema(shortened("rowrelay_mark_"+a.Table.Name))
	n.Forwarded = m.list(a)
	n.Flag = "@" + m.quote("rowrelay_"+a.Table.Name)
}

// list returns the name of the table with the keys of forwarded rows; see [Adoption.lists].
func (mysql) list(a *Adoption) string {
	return a.inSchema(shortened("rowrelay_forwarded_" + a.Table.Name))
}

func (m mysql) describe(ctx context.Context, db *sql.DB, outbox dialect.Table, name string) (d described, err error) {
	// A name with a dot is first looked up as the name of a table, and then as database.table.
	var current string
	var whole bool
	err = db.QueryRowContext(ctx, "SELECT coalesce(database(), ''), EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = database() AND table_name = ?)", name).Scan(&current, &whole)
	if err != nil {
		return d, err
	}
	schema, bare, qualified := strings.Cut(name, ".")
	if whole || !qualified {
		schema, bare = current, name
	}
	if outbox.Schema == "" && schema != current { // a trigger resolves unqualified names in its own database
		if outbox, err = dialect.ParseTable(current + "." + outbox.Name); err != nil {
			return d, err
		}
	}
	d.outbox = outbox.Backquoted()
	d.table.Schema, d.table.Name = schema, bare
	if err := m.describeColumns(ctx, db, &d.table); err != nil {
		return d, err
	}
	if len(d.table.Columns) == 0 {
		return d, fmt.Errorf("it doesn't exist, or this user has no rights on it: write the name of a table in another database as database.table")
	}
	if slices.Contains(d.table.names(), "message_key") && slices.Contains(d.table.names(), "claim_token") {
		return d, errOwn
	}
	return d, m.describeUse(ctx, db, &d)
}

func (mysql) describeColumns(ctx context.Context, db *sql.DB, table *Table) error {
	var c Column
	var key int
	return all(ctx, db, `SELECT c.column_name, c.column_type, c.is_nullable = 'YES', coalesce(c.generation_expression, '') <> '',
			CASE WHEN c.extra LIKE '%auto_increment%' THEN 'auto_increment' ELSE coalesce(c.column_default, '') END, coalesce(k.ordinal_position, 0)
		FROM information_schema.columns c
		LEFT JOIN information_schema.key_column_usage k ON k.table_schema = c.table_schema AND k.table_name = c.table_name
			AND k.column_name = c.column_name AND k.constraint_name = 'PRIMARY'
		WHERE c.table_schema = ? AND c.table_name = ? ORDER BY c.ordinal_position`, []any{table.Schema, table.Name}, func() {
		table.Columns = append(table.Columns, c)
		if key > 0 {
			table.Key = append(table.Key, c.Name)
		}
	}, &c.Name, &c.Type, &c.Nullable, &c.Generated, &c.Default, &key)
}

// describeUse reads the table's triggers, its foreign keys, and the users that may write to it, as far as the current user may see them.
func (m mysql) describeUse(ctx context.Context, db *sql.DB, d *described) error {
	var schema, name string
	t := &d.table
	err := all(ctx, db, `SELECT DISTINCT unique_constraint_schema, referenced_table_name FROM information_schema.referential_constraints
		WHERE constraint_schema = ? AND table_name = ? AND (unique_constraint_schema, referenced_table_name) <> (constraint_schema, table_name) ORDER BY 1, 2`, []any{t.Schema, t.Name}, func() {
		t.Parents = append(t.Parents, m.quote(schema)+"."+m.quote(name))
	}, &schema, &name)
	if err != nil {
		return err
	}
	err = all(ctx, db, "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = ? AND event_object_table = ? ORDER BY 1", []any{t.Schema, t.Name}, func() {
		switch name {
		case shortened("rowrelay_forward_" + t.Name):
			d.placed.Way = Trigger
		case shortened("rowrelay_mark_" + t.Name):
		default:
			t.Triggers = append(t.Triggers, name)
		}
	}, &name)
	if err != nil {
		return err
	}
	return all(ctx, db, `SELECT grantee FROM information_schema.table_privileges WHERE table_schema = ? AND table_name = ? AND privilege_type = 'INSERT'
		UNION SELECT grantee FROM information_schema.schema_privileges WHERE ? LIKE table_schema AND privilege_type = 'INSERT' ORDER BY 1`, []any{t.Schema, t.Name, t.Schema}, func() {
		t.Writers = append(t.Writers, name)
	}, &name)
}

func (mysql) prepare(ctx context.Context, conn *sql.Conn, a *Adoption) error {
	return a.execute(ctx, conn, "path", "isolate", "unprepare", "prepare", "create list")
}

func (mysql) batch(ctx context.Context, q queryer, a *Adoption, limit int) (moved int64, err error) {
	list, err := a.statements("batch", limit)
	if err != nil {
		return 0, err
	}
	for _, statement := range list {
		if _, err := q.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	err = q.QueryRowContext(ctx, "SELECT count(*) FROM rowrelay_batch").Scan(&moved)
	return moved, err
}

// switchOver uses no transaction of database/sql, because BeginTx runs START TRANSACTION, which releases the table locks. The
// statements that create and drop triggers first commit the current transaction. So a run that is killed may leave the table without
// a trigger. The next run forwards the rows that were written meanwhile. It recognises them because they aren't marked or, if the
// triggers don't mark rows, because they aren't in the list of forwarded rows.
func (m mysql) switchOver(ctx context.Context, conn *sql.Conn, a *Adoption, rest func(context.Context, queryer) (bool, error)) error {
	return m.locked(ctx, conn, a, "lock", func() error {
		done, err := rest(ctx, conn)
		switch {
		case err != nil:
			return err
		case !done:
			_, err = conn.ExecContext(ctx, "COMMIT")
			return err
		case a.placed.Way != "":
			if err := a.execute(ctx, conn, "list all", "remove"); err != nil {
				return err
			}
		}
		if err := a.execute(ctx, conn, "forward", "marker"); err != nil || !a.lists() {
			return err
		}
		if err := a.complete(ctx, conn); err != nil {
			return err
		}
		return a.execute(ctx, conn, "empty list") // TRUNCATE commits
	})
}

// undo drops the list before it deletes the record, because DROP commits. If undo deleted the record first and was killed, no later
// undo would know that the list still exists.
func (m mysql) undo(ctx context.Context, conn *sql.Conn, a *Adoption, look func(context.Context, queryer) error) error {
	if err := a.execute(ctx, conn, "create list"); err != nil { // a killed undo may have dropped the list, which LOCK TABLES needs
		return err
	}
	return m.locked(ctx, conn, a, "lock alone", func() error {
		if err := look(ctx, conn); err != nil {
			return err
		}
		return a.execute(ctx, conn, "drop list", "delete record", "remove")
	})
}

// locked calls the function work while the connection holds locks on tables. The argument lock is the name of the template that
// locks the tables.
func (mysql) locked(ctx context.Context, conn *sql.Conn, a *Adoption, lock string, work func() error) (err error) {
	defer func() {
		for _, statement := range []string{"ROLLBACK", "UNLOCK TABLES", "SET SESSION autocommit = 1, SESSION lock_wait_timeout = DEFAULT"} {
			if _, failed := conn.ExecContext(context.WithoutCancel(ctx), statement); failed != nil {
				err = errors.Join(err, failed)
				return
			}
		}
	}()
	if _, err := conn.ExecContext(ctx, "SET SESSION autocommit = 0, SESSION lock_wait_timeout = 1"); err != nil {
		return err
	}
	if err := a.execute(ctx, conn, lock); err != nil {
		return err
	}
	return work()
}
