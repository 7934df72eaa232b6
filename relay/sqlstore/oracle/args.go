package oracle

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

const (
	now        = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
	timeFormat = "'YYYY-MM-DD HH24:MI:SS.FF6'"

	// maxText is how many bytes of text a parameter has at most: a driver
	// sends a longer one as a LONG, which is good for nothing but a column.
	maxText = 4000
)

// timeText selects a time as text: drivers disagree on the time zone of a
// TIMESTAMP, which has none and is in UTC here.
func timeText(expression string) string {
	return "TO_CHAR(" + expression + ", " + timeFormat + ")"
}

// args collects a statement's arguments. Drivers bind them by their place
// in the text, so that each is added where it stands, and stands once.
type args struct{ list []any }

func (a *args) add(value any) string {
	a.list = append(a.list, value)
	return ":" + strconv.Itoa(len(a.list))
}

func (a *args) int(value int) string { return a.add(int64(value)) }

// in is a time from now, in microseconds.
func (a *args) in(by time.Duration) string {
	return now + " + NUMTODSINTERVAL(" + a.add(by.Microseconds()) + " / 1000000, 'SECOND')"
}

func (a *args) timestamp(at time.Time) string {
	return "TO_TIMESTAMP(" + a.add(at.UTC().Format("2006-01-02 15:04:05.000000")) + ", " + timeFormat + ")"
}

// given is a FROM item: a list of values, or of lists of values, as rows. It goes
// as JSON in texts that each are short enough to be a VARCHAR2; how many they
// are is a power of two, so that there are few statements.
func (a *args) given(alias string, items any, columns string) string {
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // numbers, texts and lists of them always have a form
	}
	parts := parts(string(text))
	source := a.add(parts[0])
	if len(parts) > 1 {
		source = "TO_CLOB(" + source + ")"
	}
	for _, part := range parts[1:] {
		source += " || TO_CLOB(" + a.add(part) + ")"
	}
	return "JSON_TABLE(" + source + ", '$[*]' COLUMNS (" + columns + ")) " + alias
}

func parts(text string) []string {
	var parts []string
	for text != "" || len(parts)&(len(parts)-1) != 0 {
		part := cut(text)
		parts, text = append(parts, part), text[len(part):]
	}
	return parts
}

// cut is the beginning of a text that a VARCHAR2 has room for.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// ids is a list of numbers for IN.
func (a *args) ids(values []int64) string {
	return "(SELECT j.id FROM " + a.given("j", listed(values), "id NUMBER PATH '$'") + ")"
}

func (a *args) lanes(values []int) string {
	return "(SELECT j.lane FROM " + a.given("j", listed(values), "lane NUMBER PATH '$'") + ")"
}

func (a *args) texts(values []string) string {
	return "(SELECT " + bytes("j.text") + " FROM " + a.given("j", listed(values), "text VARCHAR2(255) PATH '$'") + ")"
}

// listed is never null in JSON.
func listed[T any](values []T) []T { return append([]T{}, values...) }

// lockAll is a block that locks what a SELECT … FOR UPDATE finds.
func (a *args) lockAll(query string) backend.Query {
	return a.query("BEGIN", "    FOR locked IN (", "    "+query+") LOOP NULL; END LOOP;", "END;")
}

func (a *args) query(parts ...string) backend.Query {
	return backend.Query{SQL: strings.Join(parts, "\n"), Args: a.list}
}

// Rows that a transaction changes in a block bear its number, by which the
// statement after the block finds them. The block asks for it before it changes
// anything, and so begins the transaction, or there would be no number yet.
const (
	stamp   = "    this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);"
	stamped = "(SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual)"
)

// name is a name as the catalog has it.
func name(name string) string {
	if dialect.Quoted(name) != name {
		return name
	}
	return strings.ToUpper(name)
}

// owner is an expression for the tables' owner.
func owner(table dialect.Table) string {
	if table.Schema == "" {
		return "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
	}
	return "'" + name(table.Schema) + "'"
}
