package dialect

import (
	"strconv"
	"strings"
	"time"
)

// mysqlNow is the database's time in UTC, whatever the session's time zone is.
const mysqlNow = "utc_timestamp(6)"

// mysqlText is a statement in the making. Numbers are part of its text, for a
// statement without arguments takes one journey to the server; texts are
// arguments.
type mysqlText struct {
	sql  strings.Builder
	args []any
}

// add appends parts of the statement, with an argument for each question mark.
func (t *mysqlText) add(sql string, args ...any) *mysqlText {
	t.sql.WriteString(sql)
	t.args = append(t.args, args...)
	return t
}

func (t *mysqlText) query() Query { return Query{SQL: t.sql.String(), Args: t.args} }

// mysqlIn is a time from now.
func mysqlIn(by time.Duration) string {
	return mysqlNow + " + INTERVAL " + strconv.FormatInt(by.Microseconds(), 10) + " MICROSECOND"
}

// mysqlList is a list for IN; it matches nothing if there are none.
func mysqlList[N int | int64](numbers []N) string {
	if len(numbers) == 0 {
		return "(NULL)"
	}
	list := make([]byte, 0, 12*len(numbers))
	separator := byte('(')
	for _, number := range numbers {
		list = strconv.AppendInt(append(list, separator), int64(number), 10)
		separator = ','
	}
	return string(append(list, ')'))
}

// mysqlArguments is a list for IN of so many arguments.
func mysqlArguments(count int) string {
	if count == 0 {
		return "(NULL)"
	}
	return "(?" + strings.Repeat(",?", count-1) + ")"
}

func mysqlTexts(texts []string) []any {
	return column(texts, func(text string) any { return text })
}

const mysqlTimeFormat = "2006-01-02 15:04:05.000000"

// mysqlTime takes the zero time, too: it is before all others.
func mysqlTime(at time.Time) string { return at.UTC().Format(mysqlTimeFormat) }

// skipT is the same for the rows t of a select that looks into other tables.
func (d mysql) skipT() string {
	switch {
	case d.skipLocked && d.isMySQL8():
		return " FOR UPDATE OF t SKIP LOCKED"
	default:
		return d.skip()
	}
}

// skip is what a locking select ends with that passes over locked rows.
func (d mysql) skip() string {
	if d.skipLocked {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// share is what a select ends with that keeps others from changing the rows.
// TiDB has no lock that can be shared.
func (d mysql) share() string {
	if d.flavour == flavourTiDB {
		return " FOR UPDATE"
	}
	return " LOCK IN SHARE MODE"
}

// turn is what comes before a select that can't pass over locked rows: its turn
// among all who do the same. What it selects stays as it is until it is changed.
func (d mysql) turn(table Table) []Query {
	if d.skipLocked {
		return nil
	}
	return []Query{mysqlTurn(table)}
}

func mysqlTurn(table Table) Query {
	return mysqlQuery("SELECT lane FROM " + table.LaneLocks() + " WHERE lane = 64 FOR UPDATE")
}
