// Package adopt forwards the rows of an outbox table that belongs to another program into rowrelay's outbox. The programs
// that write to this table (the writers) are not changed.
//
// [Open] reads a description of the table and proposes a [Mapping] from its columns to a message. [Adoption.Script] returns
// the SQL that forwards the rows, and [Adoption.Run] runs it. There are two ways:
//
//   - [Trigger]: a trigger inserts a message for each row that a writer inserts, in the writer's transaction.
//   - [View]: on PostgreSQL, the table is renamed, and a view takes its place. A trigger of the view inserts the message
//     instead of the row.
//
// The backlog is the rows that wait in the table when it is adopted. It is forwarded first, in batches, while writers continue.
// The last rows of the backlog are forwarded under a lock, which is granted when no writer has a transaction open. The trigger is
// created under the same lock. So each row is forwarded once, and no new row of a key gets a lower id in the outbox than an older
// row.
//
// adopt.go has the types; expr.go the expressions of a mapping; shapes.go the tables that are recognised; plan.go the rendered
// SQL; run.go the execution. Each database has a file that reads the catalogue, and a file of SQL templates.
package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Column is a column of the adopted table.
type Column struct {
	Name      string
	Type      string // as the database formats it, such as character varying(255)
	Nullable  bool
	Default   string // the SQL of the default; empty if the column has none
	Generated bool   // the database computes the value, and an INSERT can't set it
}

// Table describes the adopted table.
type Table struct {
	Schema, Name string // as in the catalogue, not quoted. Schema is empty on SQLite.
	Columns      []Column
	Key          []string // the columns of the primary key; empty if the table has none
	Triggers     []string // the names of the table's triggers, except those that Run creates
	Writers      []string // users and roles that may INSERT into the table, except its owner
	Owner        string   // on PostgreSQL, the role that owns the table
	Secured      bool     // on PostgreSQL, row level security is on
	Parents      []string // on MySQL and MariaDB, the tables to which its foreign keys refer, quoted and with their schemas

	grants []grant // on PostgreSQL
}

// grant is a privilege of a role.
type grant struct{ Privilege, Grantee string }

// column returns the column with this name.
func (t Table) column(name string) (Column, bool) {
	for _, c := range t.Columns {
		if c.Name == name {
			return c, true
		}
	}
	return Column{}, false
}

func (t Table) names() (names []string) {
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return names
}

// number returns the name of an indexed column whose values ascend as the database inserts rows, or "".
func (t Table) number() string {
	for _, c := range t.Columns {
		if c.Default == "auto_increment" {
			return c.Name
		}
	}
	if len(t.Key) == 1 {
		key, _ := t.column(t.Key[0])
		if kind := strings.ToLower(key.Type); strings.Contains(kind, "int") || strings.Contains(kind, "numeric") {
			return key.Name
		}
	}
	return ""
}

// Header is a header of the messages.
type Header struct{ Name, Value string } // Value is an SQL expression

// Mapping defines how a row becomes a message. Its texts are SQL expressions such as concat('orders.', kind), in which the name
// of a column stands for the column's value in the row. Only Shape and the names of headers are plain texts, and Published has
// assignments.
type Mapping struct {
	Shape string // the name of the recognised kind of table; empty if none was recognised

	Topic   string
	Key     string // empty: messages have no key
	Payload string // empty: messages have no payload
	ID      string // its value must be a UUID; empty: the outbox generates ids
	Headers string // a JSON object; empty: none
	Header  []Header

	// Waiting is the condition that a row has not been sent yet. It selects the rows of the backlog and, among the rows that
	// writers insert, those that are forwarded. With the condition "false" the backlog is empty, and all new rows are forwarded. An empty
	// condition means that it is not known which rows wait; Run then refuses to start.
	Waiting string

	// Order is the order in which the backlog is forwarded, as the expressions of an ORDER BY clause.
	Order string

	// Published has assignments such as sent_at = now() that mark a row as sent. If its only element is "delete", sent rows are
	// deleted. If it is empty, rows are not marked.
	Published []string

	// Refuse makes a writer's INSERT fail if the outbox can't accept the message. Otherwise such a row is forwarded as a
	// parked message with the reason.
	Refuse bool
}

// Way is how new rows are forwarded.
type Way string

// The ways; see the package comment.
const (
	Trigger Way = "trigger"
	View    Way = "view"
)

// Adoption is a table that is going to be adopted, or has been adopted.
type Adoption struct {
	Table   Table
	Mapping Mapping
	Way     Way

	db     *sql.DB
	kind   string // the name of the database's dialect
	base   database
	busy   func(error) bool // reports whether a statement failed because of a lock
	denied func(error) bool // reports whether a statement failed because the user lacks a right
	outbox dialect.Table    // with its schema
	placed placed

	recorded   bool // the outbox's table of settings has the record of an earlier Run
	remembered bool // the mapping is from this record
}

// placed describes what an earlier Run has created in the database.
type placed struct {
	Way Way // empty: the table isn't adopted
}

// database is one kind of database.
type database interface {
	// describe reads a table and the outbox from the catalogue.
	describe(ctx context.Context, db *sql.DB, outbox dialect.Table, name string) (described, error)

	file() string             // the SQL templates
	quote(name string) string // the name, quoted for a statement if necessary
	name(*Adoption, *names)   // sets the names of the triggers and of the other objects that Run creates
	newID() string            // an SQL expression for a random UUID
	isBytes(typeName string) bool

	// text and uuid return an SQL expression that converts the given expression to text, or to the type of the outbox's message_id.
	// If the given expression is only the name of a column, the argument column describes that column. Otherwise it is the zero
	// Column.
	text(expression string, column Column) string
	uuid(expression string, column Column) string

	// headers returns an SQL expression for a JSON object. The object has the given members, and the members of the
	// object that the expression `whole` returns. `whole` may be empty.
	headers(whole string, members []Header) string

	// failed returns the value that a trigger inserts into a column of the outbox if the mapping fails for the trigger's row.
	failed(column string, table Table) string

	facts(*Adoption, *Facts) // adds the costs, locks, rights and limits on this kind of database

	// prepare prepares a connection for batch.
	prepare(ctx context.Context, conn *sql.Conn, a *Adoption) error

	// batch forwards the first rows of the backlog in the caller's transaction; limit 0 means all rows.
	batch(ctx context.Context, q queryer, a *Adoption, limit int) (moved int64, err error)

	// switchOver locks the table and calls the function rest, which forwards the rest of the backlog. If rest returns true,
	// switchOver creates the triggers. If the lock isn't granted soon, it changes nothing and returns the database's error.
	switchOver(ctx context.Context, conn *sql.Conn, a *Adoption, rest func(context.Context, queryer) (bool, error)) error

	// undo locks the table, calls the function look, and removes the triggers. If the lock isn't granted soon, it returns the
	// database's error.
	undo(ctx context.Context, conn *sql.Conn, a *Adoption, look func(context.Context, queryer) error) error
}

type described struct {
	table  Table
	outbox dialect.Table
	placed placed
}

var errOwn = errors.New("this is rowrelay's own outbox: give the name of the outbox with --table, and the name of the other table with --from")

// queryer is a *sql.DB, a *sql.Conn or a *sql.Tx.
type queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Open reads the description of a table and proposes a mapping. The last argument is the table's name, or schema.name, as in the
// catalogue. Open proposes the mapping of the last Run. If there was no earlier Run, or if the last Run failed and no Run has forwarded
// a row, Open derives a mapping from the columns. The outbox must exist in the same database. Open changes nothing.
func Open(ctx context.Context, db *sql.DB, d dialect.Dialect, outbox, from string) (*Adoption, error) {
	base, ok := databases()[d.Name()]
	if !ok {
		return nil, fmt.Errorf("adopt %s: adopting a table is not supported on %s", from, d.Name())
	}
	table, err := dialect.ParseTable(outbox)
	if err != nil {
		return nil, err
	}
	found, err := base.describe(ctx, db, table, from)
	if err != nil {
		return nil, fmt.Errorf("read the description of table %s: %w", from, err)
	}
	a := &Adoption{Table: found.table, Way: Trigger, db: db, kind: d.Name(), base: base, busy: d.Busy, denied: d.Denied, outbox: found.outbox, placed: found.placed}
	r, known, err := a.readRecord(ctx, db, "read")
	if err != nil {
		return nil, err
	}
	a.recorded, a.remembered = known, known && (!r.Failed || r.Forwarded > 0 || r.Complete || found.placed.Way != "")
	if a.remembered {
		a.Way, a.Mapping = r.Way, r.Mapping
	} else if a.Mapping, err = a.Proposal(ctx); err != nil {
		return nil, err
	}
	if found.placed.Way != "" {
		a.Way = found.placed.Way
	}
	return a, nil
}

// Proposal derives a mapping from the table's columns.
func (a *Adoption) Proposal(ctx context.Context) (m Mapping, err error) {
	if m = propose(a.kind, a.Table); m.ID == "" && len(a.Table.Key) == 1 {
		m.ID, err = a.sampleID(ctx)
	}
	return m, err
}

// sampleID returns the first column of the primary key if a row of the table has a UUID as text in this column, and "" otherwise.
func (a *Adoption) sampleID(ctx context.Context) (string, error) {
	var id any
	err := a.db.QueryRowContext(ctx, "SELECT "+a.base.quote(a.Table.Key[0])+" FROM "+a.inSchema(a.Table.Name)+" LIMIT 1").Scan(&id)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	if bytes, ok := id.([]byte); ok {
		id = string(bytes)
	}
	if text, ok := id.(string); ok && uuid.MatchString(text) {
		return a.Table.Key[0], nil
	}
	return "", nil
}

var uuid = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// Adopted returns the way in which the table is adopted, or an empty Way.
func (a *Adoption) Adopted() Way { return a.placed.Way }

// Recorded reports whether the outbox's table of settings has the record of an earlier Run. Undo removes this record even if the
// table isn't adopted.
func (a *Adoption) Recorded() bool { return a.recorded }

// Remembered reports whether Open has read the mapping from the record of an earlier Run.
func (a *Adoption) Remembered() bool { return a.remembered }

func databases() map[string]database {
	return map[string]database{
		"postgres": postgres{}, "mysql": mysql{}, "mariadb": mysql{}, "sqlite": sqlite{},
	}
}
