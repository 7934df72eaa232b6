package adopt

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"text/template"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

//go:embed common.sql
var commonFile string

// names has the values that the templates of a database's .sql file use.
type names struct {
	Outbox      dialect.Table
	From        string // the adopted table
	Record      string // the name of the adopted table's record in the table of settings, as an SQL literal
	Trigger     string // the name of the trigger that forwards rows
	TriggerName string // the name of this trigger as in the catalogue, not quoted
	Marker      string // MySQL, MariaDB: the name of the trigger that marks rows
	Forwarded   string // MySQL, MariaDB: the name of the table with the keys of forwarded rows; see Adoption.lists
	Flag        string // MySQL, MariaDB: the session variable by which the trigger Marker informs Trigger whether the row waits
	Function    string // PostgreSQL: the name of the trigger's function

	View, ViewBare       string // the name of the view that takes the table's place, with and without the schema
	Renamed, RenamedBare string // the new name of the table that the view replaces, with and without the schema
	Owner                string
	Grants               []grant
	Filled, Defaults     []field // columns with defaults; the function sets the columns in Filled, and the view the columns in Defaults
	Table                Table

	Bare string // SQLite: the table without its schema

	Refuse  bool
	Marks   bool // sent rows are marked or deleted
	Delete  bool // sent rows are deleted
	Placed  bool // the trigger exists already
	OnlyNew bool // the backlog isn't forwarded
	Lists   bool // MySQL, MariaDB: Forwarded is used; see Adoption.lists
	ByCmin  bool // PostgreSQL: the order of the backlog names cmin

	New, Row, Plain row // the mapping with each column written as NEW.column, as r.column, and as column
	Keys            []key

	Limit int // the largest number of rows of a batch; 0: no limit

	NewID string // an SQL expression for a random UUID
	P     string // the prefix of a message's columns; see With
	quote func(string) string
}

// With returns the names for a template in which a message's columns have this prefix, such as "m.".
func (n names) With(prefix string) names {
	n.P = prefix
	return n
}

// Literal returns an SQL literal with this text.
func (n names) Literal(text string) string { return literal(text) }

// Sets reports whether the mapping sets a column of the outbox.
func (n names) Sets(column string) bool {
	return slices.ContainsFunc(n.Row.Fields, func(f field) bool { return f.Column == column })
}

// row is a mapping as SQL. In its expressions the table's columns have the prefix NEW. or r., or no prefix.
type row struct {
	Waiting, Order string
	Fields         []field
	Marks          []field // the assignments that mark a row as sent
}

// field is a column with the expression for its value.
type field struct {
	Column, Value string
	Failed        string // the value if the mapping fails for a row
}

// key is a column of the primary key. Short is the column's alias, such as key1, in the list of a batch's rows.
type key struct{ Column, Short string }

// Values returns the expressions in the order of Columns.
func (r row) Values() string { return join(r.Fields, ", ", func(f field) string { return f.Value }) }

// Named returns the expressions with the names of their columns.
func (r row) Named() string {
	return join(r.Fields, ", ", func(f field) string { return f.Value + " AS " + f.Column })
}

// BeforePlace returns the expressions of the order before ctid, a row's place in the table. It returns "" if the order doesn't end
// with ctid.
func (r row) BeforePlace() string {
	if i := strings.LastIndex(r.Order, ","); i > 0 && strings.EqualFold(strings.TrimSpace(r.Order[i+1:]), "ctid") {
		return r.Order[:i]
	}
	return ""
}

// Failed returns the values of a row for which the mapping fails, with the names of their columns.
func (r row) Failed() string {
	return join(r.Fields, ", ", func(f field) string { return f.Failed + " AS " + f.Column })
}

// Assignments returns the assignments that mark a row, with a prefix before each column.
func (r row) Assignments(prefix string) string {
	return join(r.Marks, ", ", func(f field) string { return prefix + f.Column + " = " + f.Value })
}

// Columns returns the columns of the outbox that the mapping sets.
func (n names) Columns() string {
	return join(n.Row.Fields, ", ", func(f field) string { return f.Column })
}

// Message returns the values of a message whose fields have this prefix.
func (n names) Message(prefix string) string {
	return join(n.Row.Fields, ", ", func(f field) string { return prefix + f.Column })
}

// KeyIs returns the condition that two rows have the same primary key. The first two arguments are the rows' prefixes. If
// short is true, the columns of the second row have their short names.
func (n names) KeyIs(one, other string, short bool) string {
	return join(n.Keys, " AND ", func(k key) string {
		if short {
			return one + k.Column + " = " + other + k.Short
		}
		return one + k.Column + " = " + other + k.Column
	})
}

// KeyNamed returns the key columns of r with their short names.
func (n names) KeyNamed() string {
	return join(n.Keys, ", ", func(k key) string { return "r." + k.Column + " AS " + k.Short })
}

// KeysHaveIndex reports whether the key columns can have an index without a prefix length. Columns of the types text and blob need
// a prefix length.
func (n names) KeysHaveIndex() bool {
	return !slices.ContainsFunc(n.Table.Columns, func(c Column) bool {
		return slices.Contains(n.Table.Key, c.Name) && (strings.HasSuffix(c.Type, "text") || strings.HasSuffix(c.Type, "blob"))
	})
}

// Selected returns the columns of the table.
func (n names) Selected() string {
	return join(n.Table.Columns, ", ", func(c Column) string { return n.quote(c.Name) })
}

// Stored returns the columns that an INSERT can set, each with a prefix.
func (n names) Stored(prefix string) string {
	stored := slices.DeleteFunc(slices.Clone(n.Table.Columns), func(c Column) bool { return c.Generated })
	return join(stored, ", ", func(c Column) string { return prefix + n.quote(c.Name) })
}

func join[T any](list []T, separator string, text func(T) string) string {
	parts := make([]string, len(list))
	for i, element := range list {
		parts[i] = text(element)
	}
	return strings.Join(parts, separator)
}

// fields returns the columns of the outbox that the mapping sets. The argument is the prefix of the table's columns in the
// expressions.
func (a *Adoption) fields(of string) (list []field, err error) {
	m, b := a.Mapping, a.base
	add := func(column, expression string, convert func(string, Column) string) {
		qualified, failed := a.qualified(expression, of)
		if err = errors.Join(err, failed); expression != "" && failed == nil {
			bare, _ := a.bareColumn(expression)
			list = append(list, field{column, convert(qualified, bare), b.failed(column, a.Table)})
		}
	}
	add("message_id", m.ID, func(expression string, column Column) string {
		if expression = b.uuid(expression, column); column.Name == "" || column.Nullable {
			expression = "coalesce(" + expression + ", " + b.newID() + ")"
		}
		return expression
	})
	add("topic", m.Topic, b.text)
	add("message_key", m.Key, b.text)
	if bare, _ := a.bareColumn(m.Payload); b.isBytes(bare.Type) {
		add("payload", m.Payload, func(expression string, _ Column) string { return expression })
	} else {
		add("payload_text", m.Payload, b.text)
	}
	if m.Headers == "" && len(m.Header) == 0 {
		return list, err
	}
	whole, failed := a.qualified(m.Headers, of)
	err = errors.Join(err, failed)
	members := make([]Header, len(m.Header))
	for i, header := range m.Header {
		value, failed := a.qualified(header.Value, of)
		bare, _ := a.bareColumn(header.Value)
		err = errors.Join(err, failed)
		if members[i] = (Header{header.Name, b.text(value, bare)}); bare.Type == "binary(16)" { // a UUID
			members[i].Value = b.uuid(value, bare)
		}
	}
	return append(list, field{"headers", b.headers(whole, members), b.failed("headers", a.Table)}), err
}

// row returns the mapping as SQL. The argument is a prefix for the columns of the table, such as NEW.
func (a *Adoption) row(of string) (r row, err error) {
	r.Fields, err = a.fields(of)
	for _, assignment := range a.Mapping.Published {
		if a.deletes() {
			break
		}
		column, expression, failed := a.assignment(assignment)
		qualified, unread := a.qualified(expression, of)
		err = errors.Join(err, failed, unread)
		r.Marks = append(r.Marks, field{Column: a.base.quote(column), Value: qualified})
	}
	waiting, err1 := a.qualified(a.Mapping.Waiting, of)
	order, err2 := a.qualified(a.Mapping.Order, of)
	r.Waiting, r.Order = waiting, order
	return r, errors.Join(err, err1, err2)
}

func (a *Adoption) deletes() bool { return slices.Equal(a.Mapping.Published, []string{"delete"}) }

func (a *Adoption) marks() bool { return len(a.Mapping.Published) > 0 }

// marksNew reports whether the triggers mark or delete the rows that they forward. A trigger of MySQL or MariaDB can't delete the row
// that it forwards.
func (a *Adoption) marksNew() bool {
	_, isMySQL := a.base.(mysql)
	return a.marks() && !(isMySQL && a.deletes())
}

// lists reports whether a table lists the keys of forwarded rows until the trigger is created. MySQL and MariaDB commit before they
// create or drop a trigger. If the command is killed between this commit and the creation of the trigger, the next run must find
// the rows that have not been forwarded. It finds them by their marks or, if the triggers don't mark rows, by this table.
func (a *Adoption) lists() bool {
	_, isMySQL := a.base.(mysql)
	return isMySQL && !a.marksNew() && !a.onlyNew()
}

// onlyNew reports whether the condition of waiting rows is "false": the backlog is empty, and all new rows are forwarded.
func (a *Adoption) onlyNew() bool {
	return strings.EqualFold(strings.TrimSpace(a.Mapping.Waiting), "false")
}

// Check returns an error if the mapping is incomplete or contradicts itself.
func (a *Adoption) Check() error {
	m := a.Mapping
	_, isMySQL := a.base.(mysql)
	switch {
	case m.Topic == "":
		return errors.New("the topic is missing: give a column or an SQL expression")
	case m.Waiting == "":
		return fmt.Errorf("no column of %s shows which rows have been sent: give the condition of the rows that wait to be sent; "+
			"false means none (only new rows are forwarded), true means all", a.Table.Name)
	case a.marks() && len(a.Table.Key) == 0:
		return fmt.Errorf("%s has no primary key, so its rows can't be marked as sent", a.Table.Name)
	case isMySQL && len(a.Table.Key) == 0 && !a.onlyNew():
		return fmt.Errorf("%s has no primary key, which is needed on MySQL and MariaDB to forward the rows that wait: add one, or give the condition false, which forwards only new rows", a.Table.Name)
	case m.Order == "" && !a.onlyNew():
		return errors.New("the order of the rows that wait is missing: give a column or SQL expressions")
	}
	return a.Valid()
}

// Valid returns an error if an expression of the mapping is malformed, or if the table can't be adopted in this way.
func (a *Adoption) Valid() error {
	_, err := a.names(0)
	return cmp.Or(a.checkWay(), err)
}

// names returns the values that the templates use, for batches of at most limit rows.
func (a *Adoption) names(limit int) (n names, err error) {
	n = names{
		Outbox: a.outbox, Refuse: a.Mapping.Refuse, Delete: a.deletes(), Marks: a.marks(), OnlyNew: a.onlyNew(), Lists: a.lists(), ByCmin: strings.Contains(a.Mapping.Order, "cmin"), Placed: a.placed.Way != "", Limit: limit,
		NewID: a.base.newID(), Record: literal(a.recordName()), From: a.inSchema(a.Table.Name), Table: a.Table, quote: a.base.quote,
	}
	a.base.name(a, &n)
	var err1, err2, err3 error
	n.New, err1 = a.row("NEW.")
	n.Row, err2 = a.row("r.")
	n.Plain, err3 = a.row("")
	if n.OnlyNew {
		n.New.Waiting = "true"
	}
	for i, name := range a.Table.Key {
		n.Keys = append(n.Keys, key{a.base.quote(name), fmt.Sprintf("key%d", i+1)})
	}
	return n, cmp.Or(err1, err2, err3) // if the mapping is malformed, all three calls fail for the same reason
}

func (a *Adoption) inSchema(name string) string {
	if a.Table.Schema == "" {
		return a.base.quote(name)
	}
	return a.base.quote(a.Table.Schema) + "." + a.base.quote(name)
}

// render returns the SQL of a template.
func (a *Adoption) render(name string, limit int) (string, error) {
	n, err := a.names(limit)
	if err != nil {
		return "", err
	}
	parsed, err := template.New("").Parse(commonFile)
	if err == nil {
		parsed, err = parsed.Parse(a.base.file())
	}
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = parsed.ExecuteTemplate(&b, name, n)
	return strings.TrimSpace(b.String()), err
}

// statements returns the statements of a template. A semicolon before an empty line ends a statement.
func (a *Adoption) statements(name string, limit int) (list []string, err error) {
	text, err := a.render(name, limit)
	for statement := range strings.SplitSeq(text, ";\n\n") {
		if statement = strings.TrimSuffix(strings.TrimSpace(statement), ";"); statement != "" {
			list = append(list, statement)
		}
	}
	return list, err
}

// Script returns the SQL that forwards the table's rows, to be run as a whole. It forwards the whole backlog while writers wait,
// whereas [Adoption.Run] forwards most of the backlog before it takes the lock.
func (a *Adoption) Script() (string, error) {
	if err := a.Check(); err != nil {
		return "", err
	}
	return a.render("script", 0)
}

// UndoScript returns the SQL that removes what Script has created.
func (a *Adoption) UndoScript() (string, error) { return a.render("undo", 0) }

// maxIdentifier is the length in bytes to which PostgreSQL cuts a name. MySQL permits 64 characters.
const maxIdentifier = 63

// shortened cuts a name that is too long, and adds a hash of it.
func shortened(name string) string {
	if len(name) <= maxIdentifier {
		return name
	}
	return strings.ToValidUTF8(name[:maxIdentifier-9], "") + fmt.Sprintf("_%08x", hash(name))
}

func hash(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum32()
}
