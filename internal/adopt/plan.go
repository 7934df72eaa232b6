package adopt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// names has what the templates of a database's .sql file use.
type names struct {
	Outbox   dialect.Table
	From     string // the adopted table
	View     string // the name for the writers, if From is a renamed table
	Trigger  string
	Function string
	Path     string // PostgreSQL: the search path of the function
	Return   string // PostgreSQL: what the function returns

	Refuse, Delete bool
	Marks          bool // sent rows are marked or deleted

	New, Row row // the mapping of a trigger's row, and of a row r of a query

	// Columns of the outbox that the mapping sets, and the columns of a message m for them. A parked message also needs an
	// id and a topic.
	Columns, Message, HeldColumns, HeldMessage string
	FailedNamed                                string // a message for a row for which the mapping fails

	KeyIsNew string // the condition that a row is the trigger's row
	KeyIsRow string // the condition that the row r belongs to the message m
	RowKeys  string // the key columns of r, named as in KeyIsRow

	Limit int // the largest number of rows of a batch; 0: no limit
}

// row is a mapping whose columns belong to one row.
type row struct {
	Waiting, Order, Headers string
	Values                  string // the expressions for the columns of the outbox
	Named                   string // the same, each with the name of its column
	Marks                   string // the assignments that mark a row as sent
}

// field is a column of the outbox with its expression.
type field struct{ column, expression string }

// fields returns the columns that the mapping sets.
func (a *Adoption) fields(of string) (list []field, headers string, err error) {
	m, b := a.Mapping, a.base
	add := func(column, expression string, convert func(string) string) {
		if expression == "" || err != nil {
			return
		}
		var qualified string
		if qualified, err = a.qualified(expression, of); err == nil {
			list = append(list, field{column, convert(qualified)})
		}
	}
	add("message_id", m.ID, b.uuid)
	add("topic", m.Topic, b.text)
	add("message_key", m.Key, b.text)
	if a.payloadIsBytes() {
		add("payload", m.Payload, func(expression string) string { return expression })
	} else {
		add("payload_text", m.Payload, b.text)
	}
	if err != nil || m.Headers == "" && len(m.Header) == 0 {
		return list, "", err
	}
	whole, err := a.qualified(m.Headers, of)
	members := make([]Header, len(m.Header))
	for i, header := range m.Header {
		value, failed := a.qualified(header.Value, of)
		members[i], err = Header{header.Name, b.text(value)}, errors.Join(err, failed)
	}
	headers = b.headers(whole, members)
	return append(list, field{"headers", headers}), headers, err
}

func (a *Adoption) payloadIsBytes() bool {
	c, bare := a.bareColumn(a.Mapping.Payload)
	return bare && a.base.isBytes(c.Type)
}

// row returns the mapping for a row that has this name in a statement.
func (a *Adoption) row(of string) (row, error) {
	list, headers, err := a.fields(of)
	if err != nil {
		return row{}, err
	}
	r := row{Headers: headers}
	for _, f := range list {
		r.Values += ", " + f.expression
		r.Named += ", " + f.expression + " AS " + f.column
	}
	r.Values, r.Named = strings.TrimPrefix(r.Values, ", "), strings.TrimPrefix(r.Named, ", ")
	var marks []string
	for _, assignment := range a.Mapping.Published {
		if a.deletes() {
			break
		}
		column, expression, err := a.assignment(assignment)
		if err != nil {
			return row{}, err
		}
		qualified, err := a.qualified(expression, of)
		if err != nil {
			return row{}, err
		}
		marks = append(marks, a.base.quote(column)+" = "+qualified)
	}
	r.Marks = strings.Join(marks, ", ")
	waiting, err1 := a.qualified(a.Mapping.Waiting, of)
	order, err2 := a.qualified(a.Mapping.Order, of)
	r.Waiting, r.Order = waiting, order
	return r, errors.Join(err1, err2)
}

func (a *Adoption) deletes() bool { return slices.Equal(a.Mapping.Published, []string{"delete"}) }

// onlyNew reports whether no row waits, and all new rows are forwarded.
func (a *Adoption) onlyNew() bool {
	return strings.EqualFold(strings.TrimSpace(a.Mapping.Waiting), "false")
}

// Check returns an error if the mapping is incomplete or contradicts itself.
func (a *Adoption) Check() error {
	m := a.Mapping
	switch {
	case m.Topic == "":
		return errors.New("the topic is missing: give a column or an SQL expression")
	case m.Waiting == "":
		return fmt.Errorf("no column of %s shows which rows have been sent: give the condition of the rows that wait to be sent; "+
			"false means none (only new rows are forwarded), true means all", a.Table.Name)
	case len(m.Published) > 0 && len(a.Table.Key) == 0:
		return fmt.Errorf("%s has no primary key, so its rows can't be marked as sent", a.Table.Name)
	case m.Order == "" && !a.onlyNew():
		return errors.New("the order of the rows that wait is missing: give a column or SQL expressions")
	}
	_, err := a.names(0)
	return err
}

// names returns what the templates use, for batches of at most limit rows.
func (a *Adoption) names(limit int) (names, error) {
	n := names{Outbox: a.outbox, Refuse: a.Mapping.Refuse, Delete: a.deletes(), Marks: len(a.Mapping.Published) > 0, Limit: limit, Return: "NULL"}
	n.From = a.inSchema(a.Table.Name)
	n.Trigger = a.base.quote("rowrelay_forward")
	n.Function = a.inSchema(shortened("rowrelay_forward_" + a.Table.Name))
	n.Path = a.searchPath()
	var err1, err2 error
	n.New, err1 = a.row("NEW")
	n.Row, err2 = a.row("r")
	if err := errors.Join(err1, err2); err != nil {
		return n, err
	}
	if a.onlyNew() {
		n.New.Waiting, n.Row.Waiting = "", ""
	}
	list, _, _ := a.fields("r")
	message := func(f field) string {
		if f.column == "message_id" {
			return "coalesce(m.message_id, gen_random_uuid())"
		}
		return "m." + f.column
	}
	var columns, values, held, heldValues, failed []string
	hasID := false
	for _, f := range list {
		value := message(f)
		columns, values = append(columns, f.column), append(values, value)
		hasID = hasID || f.column == "message_id"
		if f.column == "topic" {
			value = "coalesce(m.topic, '')"
		}
		held, heldValues = append(held, f.column), append(heldValues, value)
		failed = append(failed, a.failedValue(f.column)+" AS "+f.column)
	}
	if !hasID {
		held, heldValues = append(held, "message_id"), append(heldValues, "gen_random_uuid()")
	}
	n.Columns, n.Message = strings.Join(columns, ", "), strings.Join(values, ", ")
	n.HeldColumns, n.HeldMessage, n.FailedNamed = strings.Join(held, ", "), strings.Join(heldValues, ", "), strings.Join(failed, ", ")
	var isNew, isRow, keys []string
	for i, name := range a.Table.Key {
		quoted, short := a.base.quote(name), fmt.Sprintf("key%d", i+1)
		isNew = append(isNew, quoted+" = NEW."+quoted)
		isRow = append(isRow, "r."+quoted+" = m."+short)
		keys = append(keys, "r."+quoted+" AS "+short)
	}
	n.KeyIsNew, n.KeyIsRow, n.RowKeys = strings.Join(isNew, " AND "), strings.Join(isRow, " AND "), strings.Join(keys, ", ")
	return n, nil
}

// failedValue returns the value of a column for a row for which the mapping fails.
func (a *Adoption) failedValue(column string) string {
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

func (a *Adoption) inSchema(name string) string {
	if a.Table.Schema == "" {
		return a.base.quote(name)
	}
	return a.base.quote(a.Table.Schema) + "." + a.base.quote(name)
}

// searchPath has the schemas of the outbox and of the table. The schema of temporary tables is last, so that nobody can
// put an object of their own in the place of ours.
func (a *Adoption) searchPath() string {
	list := []string{"pg_catalog", a.base.quote(a.outbox.Schema)}
	if a.Table.Schema != a.outbox.Schema {
		list = append(list, a.base.quote(a.Table.Schema))
	}
	return strings.Join(append(list, "pg_temp"), ", ")
}

// render returns the SQL of a template.
func (a *Adoption) render(name string, limit int) (string, error) {
	n, err := a.names(limit)
	if err != nil {
		return "", err
	}
	parsed, err := template.New("").Parse(a.base.file())
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = parsed.ExecuteTemplate(&b, name, n)
	return strings.TrimSpace(b.String()), err
}

// Script returns the SQL that forwards the table's rows, to be run as a whole. It forwards the backlog while writers wait;
// [Adoption.Run] forwards most of it before.
func (a *Adoption) Script() (string, error) {
	if err := a.Check(); err != nil {
		return "", err
	}
	return a.render("script", 0)
}

// UndoScript returns the SQL that removes what Script has created.
func (a *Adoption) UndoScript() (string, error) { return a.render("undo", 0) }

// maxIdentifier is the length in bytes to which PostgreSQL cuts a name.
const maxIdentifier = 63

// shortened cuts a name that is too long, and adds a hash of it.
func shortened(name string) string {
	if len(name) <= maxIdentifier {
		return name
	}
	var sum uint32 = 2166136261 // FNV-1a
	for i := range len(name) {
		sum = (sum ^ uint32(name[i])) * 16777619
	}
	return name[:maxIdentifier-9] + fmt.Sprintf("_%08x", sum)
}
