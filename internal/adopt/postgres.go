package adopt

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

type postgres struct{}

//go:embed postgres.sql
var postgresFile string

func (postgres) file() string { return postgresFile }

// quote returns the name in quotes, or unchanged if it needs no quotes.
func (postgres) quote(name string) string {
	if table, err := dialect.ParseTable(name); err == nil && table.Schema == "" {
		return table.Pending
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func (postgres) isBytes(typeName string) bool { return typeName == "bytea" }

func (postgres) newID() string { return "gen_random_uuid()" }

func (postgres) text(expression string, _ Column) string { return cast(expression, "text") }
func (postgres) uuid(expression string, _ Column) string { return cast(expression, "uuid") }

// cast converts an expression. It adds parentheses if the expression has operators.
func cast(expression, typeName string) string {
	if strings.ContainsAny(expression, " +-*/|<>=:") {
		expression = "(" + expression + ")"
	}
	return expression + "::" + typeName
}

// headers leaves out members that are NULL. The JSON value null means no headers.
func (postgres) headers(whole string, members []Header) string {
	if len(members) == 0 {
		whole = cast(whole, "json")
		return "CASE WHEN json_typeof(" + whole + ") <> 'null' THEN json_strip_nulls(" + whole + ") END"
	}
	object := "jsonb_build_object(" + join(members, ", ", func(h Header) string { return literal(h.Name) + ", " + h.Value }) + ")"
	if whole != "" {
		object = "coalesce(nullif(" + cast(whole, "jsonb") + ", 'null'), '{}') || " + object
	}
	return "jsonb_strip_nulls(" + object + ")::json"
}

func (postgres) failed(column string, _ Table) string {
	switch column {
	case "topic":
		return "'unknown'"
	case "payload":
		return "convert_to(to_json(NEW)::text, 'UTF8')"
	case "payload_text":
		return "to_json(NEW)::text"
	case "headers":
		return "NULL::json"
	case "message_id":
		return "NULL::uuid"
	}
	return "NULL::text"
}

func (p postgres) name(a *Adoption, n *names) {
	n.TriggerName = "rowrelay_forward"
	n.Trigger, n.Function = "rowrelay_forward", a.inSchema(shortened("rowrelay_forward_"+a.Table.Name))
	if a.Way == View {
		p.nameView(a, n)
	}
}

func (p postgres) nameView(a *Adoption, n *names) {
	renamed := shortened(a.Table.Name + "_adopted")
	n.View, n.ViewBare, n.Renamed, n.RenamedBare = n.From, p.quote(a.Table.Name), a.inSchema(renamed), p.quote(renamed)
	if a.placed.Way == View {
		n.From = n.Renamed
	}
	n.Owner, n.Grants = p.quote(a.Table.Owner), a.Table.grants
	for _, c := range a.Table.Columns {
		value := field{Column: p.quote(c.Name), Value: c.Default}
		switch {
		case c.Default == "" || c.Generated:
		case c.Nullable: // the function couldn't distinguish a NULL that the program has set from a missing value
			n.Defaults = append(n.Defaults, value)
		default: // not in the view, because the program may have no right on the sequence that the default uses
			n.Filled = append(n.Filled, value)
		}
	}
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (p postgres) describe(ctx context.Context, db *sql.DB, outbox dialect.Table, name string) (d described, err error) {
	oid, kind, err := p.find(ctx, db, &d.table, name)
	if err != nil {
		return d, err
	}
	var outboxOID int64
	err = db.QueryRowContext(ctx, "SELECT c.oid::bigint, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('"+outbox.Pending+"')").
		Scan(&outboxOID, &outbox.Schema)
	if errors.Is(err, sql.ErrNoRows) {
		return d, fmt.Errorf("the outbox %s doesn't exist: run rowrelay migrate up", outbox)
	}
	if err != nil {
		return d, err
	}
	if d.outbox, err = dialect.ParseTable(outbox.Schema + "." + outbox.Name); err != nil {
		return d, err
	}
	if oid == outboxOID {
		return d, errOwn
	}
	if err := p.describeUse(ctx, db, oid, &d); err != nil {
		return d, err
	}
	switch {
	case kind == "v" && d.placed.Way != "":
		d.placed.Way = View
		under := Table{}
		if oid, _, err = p.find(ctx, db, &under, d.table.Schema+"."+shortened(d.table.Name+"_adopted")); err != nil {
			return d, fmt.Errorf("find the table under the view: %w", err)
		}
	case kind != "r" && kind != "p":
		return d, errors.New("it is not a table")
	}
	return d, p.describeColumns(ctx, db, oid, &d.table)
}

// find finds a table. A name with a dot is first looked up as the name of a table, and then as schema.table.
func (postgres) find(ctx context.Context, db *sql.DB, table *Table, name string) (oid int64, kind string, err error) {
	schema, bare, _ := strings.Cut(name, ".")
	err = db.QueryRowContext(ctx, `SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, pg_get_userbyid(c.relowner), c.relrowsecurity
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = coalesce(to_regclass(quote_ident($1::text)), to_regclass(quote_ident($2::text) || '.' || quote_ident($3::text)))`, name, schema, bare).
		Scan(&oid, &table.Schema, &table.Name, &kind, &table.Owner, &table.Secured)
	if errors.Is(err, sql.ErrNoRows) {
		err = errors.New("it doesn't exist: names are case-sensitive, and a table in another schema is named schema.table")
	}
	return oid, kind, err
}

// describeColumns reads the columns. It sets search_path so that the names in the texts of defaults contain their schemas, except
// names of pg_catalog.
func (postgres) describeColumns(ctx context.Context, db *sql.DB, oid int64, table *Table) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SET LOCAL search_path = pg_catalog, pg_temp"); err != nil {
		return err
	}
	var c Column
	var key bool
	return all(ctx, tx, `SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, a.attgenerated <> '',
			CASE WHEN a.attidentity <> '' THEN 'nextval(' || quote_literal(pg_get_serial_sequence(a.attrelid::regclass::text, a.attname)) || '::regclass)'
				ELSE coalesce(pg_get_expr(d.adbin, d.adrelid), '') END,
			coalesce(a.attnum = ANY (i.indkey), false)
		FROM pg_attribute a
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
		WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, []any{oid}, func() {
		table.Columns = append(table.Columns, c)
		if key {
			table.Key = append(table.Key, c.Name)
		}
	}, &c.Name, &c.Type, &c.Nullable, &c.Generated, &c.Default, &key)
}

// describeUse reads the triggers and the grants of a table or view.
func (p postgres) describeUse(ctx context.Context, db *sql.DB, oid int64, d *described) error {
	var name, privilege string
	err := all(ctx, db, "SELECT tgname FROM pg_trigger WHERE tgrelid = $1::bigint::oid AND NOT tgisinternal ORDER BY tgname", []any{oid}, func() {
		if name == "rowrelay_forward" {
			d.placed.Way = Trigger
			return
		}
		d.table.Triggers = append(d.table.Triggers, name)
	}, &name)
	if err != nil {
		return err
	}
	return all(ctx, db, `SELECT CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END, g.privilege_type || g.columns
		FROM (
			SELECT x.grantee, x.privilege_type, '' AS columns FROM pg_class c, aclexplode(c.relacl) x WHERE c.oid = $1::bigint::oid AND x.grantee <> c.relowner
			UNION ALL
			SELECT x.grantee, x.privilege_type, ' (' || string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) || ')'
			FROM pg_attribute a, aclexplode(a.attacl) x WHERE a.attrelid = $1::bigint::oid AND NOT a.attisdropped GROUP BY x.grantee, x.privilege_type
		) AS g WHERE g.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') ORDER BY 1, 2`, []any{oid}, func() {
		d.table.grants = append(d.table.grants, grant{privilege, name})
		if strings.HasPrefix(privilege, "INSERT") {
			d.table.Writers = append(d.table.Writers, name)
		}
	}, &name, &privilege)
}

func (postgres) prepare(context.Context, *sql.Conn, *Adoption) error { return nil }

func (postgres) batch(ctx context.Context, q queryer, a *Adoption, limit int) (moved int64, err error) {
	statement, err := a.render("batch", limit)
	if err != nil {
		return 0, err
	}
	if err := a.execute(ctx, q, "path"); err != nil {
		return 0, err
	}
	err = q.QueryRowContext(ctx, statement).Scan(&moved)
	return moved, err
}

func (p postgres) switchOver(ctx context.Context, conn *sql.Conn, a *Adoption, rest func(context.Context, queryer) (bool, error)) error {
	return p.locked(ctx, conn, func(tx *sql.Tx) error {
		if err := a.execute(ctx, tx, "lock"); err != nil {
			return err
		}
		if done, err := rest(ctx, tx); err != nil || !done {
			return err
		}
		if a.Way == View && a.placed.Way == "" {
			return a.execute(ctx, tx, "view")
		}
		return a.execute(ctx, tx, "function", "trigger")
	})
}

func (p postgres) undo(ctx context.Context, conn *sql.Conn, a *Adoption, look func(context.Context, queryer) error) error {
	return p.locked(ctx, conn, func(tx *sql.Tx) error {
		template := "remove"
		if a.placed.Way == View {
			template = "remove view"
		}
		if err := a.execute(ctx, tx, template); err != nil { // this locks the table
			return err
		}
		if err := look(ctx, tx); err != nil {
			return err
		}
		return a.execute(ctx, tx, "delete record")
	})
}

// locked calls the function work in a transaction that waits at most half a second for each lock.
func (postgres) locked(ctx context.Context, conn *sql.Conn, work func(*sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '500ms'"); err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// all runs a query. It scans each row into the destinations, and then calls the function took.
func all(ctx context.Context, q queryer, query string, args []any, took func(), destinations ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(destinations...); err != nil {
			return err
		}
		took()
	}
	return rows.Err()
}
