package dialect

import (
	"strconv"
	"strings"
	"time"
)

// postgresArgs collects a statement's arguments. Arrays go as text, which
// every driver sends.
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

func (a *postgresArgs) ids(values []int64) string {
	return a.add(postgresIDs(values), "bigint[]")
}

func (a *postgresArgs) messageIDs(settlements []Settlement) string {
	return a.add(postgresMessageIDs(settlements), "uuid[]")
}

func (a *postgresArgs) lanes(values []int) string {
	return a.add(postgresArray(values, strconv.Itoa), "smallint[]")
}

func (a *postgresArgs) texts(values []string) string {
	return a.add(postgresArray(values, quotedItem), "text[]")
}

// timestamp takes the zero time, too: it is before all others.
func (a *postgresArgs) timestamp(at time.Time) string {
	return a.add(at.UTC().Format("2006-01-02 15:04:05.999999+00"), "timestamptz")
}

// planNow keeps the server from planning a statement once for all: a plan that
// was made while the table was empty reads the whole table when it is full. A
// plan for any argument would have to reckon with the count, which is dear; one
// for this argument leaves the condition out. It works without a setting, and
// so behind a pooler.
func (a *postgresArgs) planNow() string {
	return "(" + a.add(true, "boolean") + " OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0)"
}

// boundBy returns a bound, with something beside it that is dear to compute, and
// never is, as the bound isn't null. Where the bound is a condition of an index
// the planner reckons with the price once; where it is a filter, or has to be
// checked again after a bitmap of the index, once a row. So it takes the rows in
// the index's order, and doesn't read and sort all that there are: the right
// choice also where its statistics say that there are none, as they do after
// each vacuum of an empty table. A row has to be dearer by it than a page that is
// read out of turn (random_page_cost 4) is, and twice as much again: the planner
// reckons half of the words that a text is compared with, each of them 100
// operations of 0.0025. The text is one that the planner doesn't know, of a row or of
// a SELECT: one that it knows, now() among them, it would compare with all the words
// each time that it plans, which takes longer than the rest of planning.
func boundBy(bound, text string) string {
	return "COALESCE(" + bound + ", (" + text + " @@ ANY ('{" + strings.Repeat("x,", boundWords-1) + "x}'::text[]))::int)"
}

const boundWords = 100

// timeBoundBy is the same for a bound that is a time. A bound that is given beforehand
// has to stand in a SELECT of its own: the planner would leave out all but a value.
func timeBoundBy(bound, text string) string {
	return "COALESCE(" + bound + ", " + boundBy("NULL", text) + " * interval '1 s' + now())"
}

// postgresFound is a FROM of the rows of given, as g, and for each the row of a
// table with its lane and id, as x. With the place of that row a statement
// changes t by t.ctid = g.place, one row after the other. Joined by their keys
// the rows would be found by a scan of the table wherever the planner takes it
// for small.
func postgresFound(table, columns, where, suffix string) string {
	return "FROM given AS g CROSS JOIN LATERAL (SELECT " + columns + " FROM " + table + " AS h WHERE h.lane = g.lane AND h.id = g.id" + where + " LIMIT 1" + suffix + ") AS x"
}

// postgresMessage is a condition of rows that have the message which is given.
const postgresMessage = " AND h.message_id = g.message_id"

func (a *postgresArgs) limit(count int) string { return "LIMIT " + a.int(count) }

func (a *postgresArgs) query(parts ...string) Query {
	return Query{SQL: strings.Join(parts, "\n"), Args: a.list}
}

func column[T, C any](rows []T, of func(T) C) []C {
	values := make([]C, len(rows))
	for i, row := range rows {
		values[i] = of(row)
	}
	return values
}
