package dialect

import (
	"strconv"
	"time"
)

// mysqlNow is the database's time in UTC, whatever the session's time zone is.
const mysqlNow = "utc_timestamp(6)"

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

const mysqlTimeFormat = "2006-01-02 15:04:05.000000"

// mysqlTime takes the zero time, too: it is before all others.
func mysqlTime(at time.Time) string { return at.UTC().Format(mysqlTimeFormat) }
