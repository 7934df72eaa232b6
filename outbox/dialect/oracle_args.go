package dialect

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	oracleNow        = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
	oracleTimeFormat = "'YYYY-MM-DD HH24:MI:SS.FF6'"

	// oracleMaxText is how many bytes of text a parameter has at most: a driver
	// sends a longer one as a LONG, which is good for nothing but a column.
	oracleMaxText = 4000
)

// oracleTime selects a time as text: drivers disagree on the time zone of a
// TIMESTAMP, which has none and is in UTC here.
func oracleTime(expression string) string {
	return "TO_CHAR(" + expression + ", " + oracleTimeFormat + ")"
}

// oracleArgs collects a statement's arguments. Drivers bind them by their place
// in the text, so that each is added where it stands, and stands once.
type oracleArgs struct{ list []any }

func (a *oracleArgs) add(value any) string {
	a.list = append(a.list, value)
	return ":" + strconv.Itoa(len(a.list))
}

func (a *oracleArgs) int(value int) string { return a.add(int64(value)) }

// in is a time from now, in microseconds.
func (a *oracleArgs) in(by time.Duration) string {
	return oracleNow + " + NUMTODSINTERVAL(" + a.add(by.Microseconds()) + " / 1000000, 'SECOND')"
}

func (a *oracleArgs) timestamp(at time.Time) string {
	return "TO_TIMESTAMP(" + a.add(at.UTC().Format("2006-01-02 15:04:05.000000")) + ", " + oracleTimeFormat + ")"
}

// given is a FROM item: a list of values, or of lists of values, as rows. It goes
// as JSON in texts that each are short enough to be a VARCHAR2; how many they
// are is a power of two, so that there are few statements.
func (a *oracleArgs) given(alias string, items any, columns string) string {
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // numbers, texts and lists of them always have a form
	}
	parts := oracleParts(string(text))
	source := a.add(parts[0])
	if len(parts) > 1 {
		source = "TO_CLOB(" + source + ")"
	}
	for _, part := range parts[1:] {
		source += " || TO_CLOB(" + a.add(part) + ")"
	}
	return "JSON_TABLE(" + source + ", '$[*]' COLUMNS (" + columns + ")) " + alias
}

func oracleParts(text string) []string {
	var parts []string
	for text != "" || len(parts)&(len(parts)-1) != 0 {
		part := oracleCut(text)
		parts, text = append(parts, part), text[len(part):]
	}
	return parts
}

// oracleCut is the beginning of a text that a VARCHAR2 has room for.
func oracleCut(text string) string {
	if len(text) <= oracleMaxText {
		return text
	}
	end := oracleMaxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// lockAll is a block that locks what a SELECT … FOR UPDATE finds.
func (a *oracleArgs) lockAll(query string) Query {
	return a.query("BEGIN", "    FOR locked IN (", "    "+query+") LOOP NULL; END LOOP;", "END;")
}

func (a *oracleArgs) query(parts ...string) Query {
	return Query{SQL: strings.Join(parts, "\n"), Args: a.list}
}

// oracleName is a name as the catalog has it.
func oracleName(name string) string {
	if Quoted(name) != name {
		return name
	}
	return strings.ToUpper(name)
}

// oracleOwner is an expression for the tables' owner.
func oracleOwner(table Table) string {
	if table.Schema() == "" {
		return "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
	}
	return "'" + oracleName(table.Schema()) + "'"
}
