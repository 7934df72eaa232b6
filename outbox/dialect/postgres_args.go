package dialect

import (
	"strconv"
	"strings"
	"time"
)

// postgresArgs collects a statement's arguments.
type postgresArgs struct{ list []any }

// add returns the placeholder for a value, cast to the type.
func (a *postgresArgs) add(value any, as string) string {
	a.list = append(a.list, value)
	return "$" + strconv.Itoa(len(a.list)) + "::" + as
}

func (a *postgresArgs) int(value int) string { return a.add(int64(value), "bigint") }

func (a *postgresArgs) text(value string) string { return a.add(value, "text") }

// interval has microseconds.
func (a *postgresArgs) interval(value time.Duration) string {
	return "(" + a.add(value.Microseconds(), "bigint") + " * interval '1 microsecond')"
}

func (a *postgresArgs) query(parts ...string) Query {
	return Query{SQL: strings.Join(parts, "\n"), Args: a.list}
}
