package sqlserver

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// args collects a statement's arguments.
type args struct{ list []any }

// add returns the placeholder for a value.
func (a *args) add(value any) string {
	a.list = append(a.list, value)
	return "@p" + strconv.Itoa(len(a.list))
}

func (a *args) int(value int) string { return a.add(int64(value)) }

func (a *args) query(lines ...string) backend.Query {
	return backend.Query{SQL: strings.Join(lines, "\n"), Args: a.list}
}

// write is at READ COMMITTED, whatever level a transaction before has left with
// the connection: only there may a statement pass over locked rows.
func (a *args) write(lines ...string) backend.Query {
	return a.query(append([]string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"}, lines...)...)
}

// in is a time from now, and ago one before.
func (a *args) in(by time.Duration) string  { return in(a.add(millis(by))) }
func (a *args) ago(by time.Duration) string { return in(a.add(-millis(by))) }

// in is so many milliseconds from now. DATEADD takes no number above
// 31 bits.
func in(millis string) string {
	return "DATEADD(MILLISECOND, " + millis + " % 1000, DATEADD(SECOND, " + millis + " / 1000, SYSUTCDATETIME()))"
}

// millis rounds up.
func millis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

const timeFormat = "2006-01-02T15:04:05.0000000"

// time is any time since the year 1.
func (a *args) time(at time.Time) string {
	return "CONVERT(datetime2(7), " + a.add(at.UTC().Format(timeFormat)) + ", 126)"
}

// list is a parameter for OPENJSON: there may be no more than 2,100 of them.
func list[T any](a *args, items []T) string {
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

func iDs(a *args, ids []int64) string {
	return "(SELECT id FROM OPENJSON(" + list(a, ids) + ") WITH (id bigint '$'))"
}

func laneList(a *args, lanes []int) string {
	return "(SELECT lane FROM OPENJSON(" + list(a, lanes) + ") WITH (lane smallint '$'))"
}
