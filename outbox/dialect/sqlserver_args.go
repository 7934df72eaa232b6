package dialect

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// sqlserverArgs collects a statement's arguments.
type sqlserverArgs struct{ list []any }

// add returns the placeholder for a value.
func (a *sqlserverArgs) add(value any) string {
	a.list = append(a.list, value)
	return "@p" + strconv.Itoa(len(a.list))
}

func (a *sqlserverArgs) int(value int) string { return a.add(int64(value)) }

func (a *sqlserverArgs) query(lines ...string) Query {
	return Query{SQL: strings.Join(lines, "\n"), Args: a.list}
}

// write is at READ COMMITTED, whatever level a transaction before has left with
// the connection: only there may a statement pass over locked rows.
func (a *sqlserverArgs) write(lines ...string) Query {
	return a.query(append([]string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"}, lines...)...)
}

// ago is a time before now.
func (a *sqlserverArgs) ago(by time.Duration) string { return sqlserverIn(a.add(-sqlserverMillis(by))) }

// sqlserverIn is so many milliseconds from now. DATEADD takes no number above
// 31 bits.
func sqlserverIn(millis string) string {
	return "DATEADD(MILLISECOND, " + millis + " % 1000, DATEADD(SECOND, " + millis + " / 1000, SYSUTCDATETIME()))"
}

// sqlserverMillis rounds up.
func sqlserverMillis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

const sqlserverTimeFormat = "2006-01-02T15:04:05.0000000"

func sqlserverTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return roundUp(at, 100*time.Nanosecond).Format(sqlserverTimeFormat)
}

// sqlserverList is a parameter for OPENJSON: there may be no more than 2,100 of them.
func sqlserverList[T any](a *sqlserverArgs, items []T) string {
	if len(items) == 0 {
		return a.add("[]")
	}
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // numbers, texts and lists of them always have a form
	}
	return a.add(padded(string(text)))
}

// padded appends blanks, so that a list has one of two types: the server keeps a
// plan for each type of a parameter, and the driver declares nvarchar of just
// the length that a text has, up to 4,000.
func padded(text string) string {
	units := 0
	for _, r := range text {
		units++
		if r > 0xFFFF {
			units++
		}
	}
	switch {
	case units <= 500:
		return text + strings.Repeat(" ", 500-units)
	case units <= 4000:
		return text + strings.Repeat(" ", 4001-units)
	default:
		return text
	}
}
