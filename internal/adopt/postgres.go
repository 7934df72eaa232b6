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

type postgres struct{}

//go:embed postgres.sql
var postgresFile string

func (postgres) file() string { return postgresFile }

// quote quotes all names but those of lower-case letters that are no words of SQL.
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

func (postgres) headers(whole string, members []Header) string {
	if len(members) == 0 {
		return cast(whole, "json")
	}
	object := "jsonb_strip_nulls(jsonb_build_object(" + join(members, ", ", func(h Header) string { return literal(h.Name) + ", " + h.Value }) + "))"
	if whole != "" {
		object = "(coalesce(" + cast(whole, "jsonb") + ", '{}') || " + object + ")"
	}
	return object + "::json"
}

func (postgres) failed(column string, _ Table) string {
	switch column {
	case "topic":
		return "''"
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
	n.Trigger, n.Function = "rowrelay_forward", a.inSchema(shortened("rowrelay_forward_"+a.Table.Name))
	// The schema of temporary tables is last, so that nobody can put an object of their own in the place of ours.
	schemas := []string{"pg_catalog", p.quote(a.outbox.Schema)}
	if a.Table.Schema != a.outbox.Schema {
		schemas = append(schemas, p.quote(a.Table.Schema))
	}
	n.Path = strings.Join(append(schemas, "pg_temp"), ", ")
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (p postgres) describe(ctx context.Context, db *sql.DB, outbox dialect.Table, name string) (d described, err error) {
	schema, bare, qualified := strings.Cut(name, ".")
	if !qualified {
		schema, bare = "", name
	}
	var oid, outboxOID sql.NullInt64
	var kind string
	err = db.QueryRowContext(ctx, `SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, pg_get_userbyid(c.relowner)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = to_regclass(CASE WHEN $1::text = '' THEN '' ELSE quote_ident($1::text) || '.' END || quote_ident($2::text))`, schema, bare).
		Scan(&oid, &d.table.Schema, &d.table.Name, &kind, &d.table.Owner)
	if errors.Is(err, sql.ErrNoRows) {
		return d, fmt.Errorf("it doesn't exist: names are case-sensitive, and the name of another schema is given as schema.table")
	}
	if err != nil {
		return d, err
	}
	if !slices.Contains([]string{"r", "p", "v"}, kind) {
		return d, fmt.Errorf("it is not a table (pg_class.relkind is %s)", kind)
	}
	d.table.Partitioned = kind == "p"
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
		return d, fmt.Errorf("it is rowrelay's own outbox: give the name of the other one with --table")
	}
	err = p.describeColumns(ctx, db, oid.Int64, &d.table)
	if err == nil {
		err = p.describeUse(ctx, db, oid.Int64, &d)
	}
	return d, err
}

func (postgres) describeColumns(ctx context.Context, db *sql.DB, oid int64, table *Table) error {
	var c Column
	var key bool
	return all(ctx, db, `SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, a.attgenerated <> '',
			CASE WHEN a.attidentity <> '' THEN 'identity' ELSE coalesce(pg_get_expr(d.adbin, d.adrelid), '') END,
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

// describeUse reads the table's triggers and the roles that write to it.
func (postgres) describeUse(ctx context.Context, db *sql.DB, oid int64, d *described) error {
	var name string
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
	return all(ctx, db, `SELECT DISTINCT coalesce(pg_get_userbyid(nullif(x.grantee, 0)), 'PUBLIC')
		FROM pg_class c, aclexplode(c.relacl) x WHERE c.oid = $1::bigint::oid AND x.privilege_type = 'INSERT' AND x.grantee <> c.relowner ORDER BY 1`, []any{oid}, func() {
		d.table.Writers = append(d.table.Writers, name)
	}, &name)
}

func (postgres) prepare(context.Context, *sql.Conn, *Adoption) error { return nil }

func (postgres) batch(ctx context.Context, q queryer, a *Adoption, limit int) (moved int64, err error) {
	statement, err := a.render("batch", limit)
	if err != nil {
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
		return a.execute(ctx, tx, "function", "trigger")
	})
}

func (p postgres) undo(ctx context.Context, conn *sql.Conn, a *Adoption) error {
	return p.locked(ctx, conn, func(tx *sql.Tx) error {
		if err := a.execute(ctx, tx, "remove"); err != nil {
			return err
		}
		return a.forget(ctx, tx)
	})
}

// locked runs work in a transaction that waits at most half a second for each lock.
func (postgres) locked(ctx context.Context, conn *sql.Conn, work func(*sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err = tx.ExecContext(ctx, "SET LOCAL lock_timeout = '500ms'"); err == nil {
		err = work(tx)
	}
	if err == nil {
		return tx.Commit()
	}
	if dialect.Postgres().Busy(err) {
		return errLocked
	}
	return err
}

// all runs a query, scans each row into the destinations, and then calls took.
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
