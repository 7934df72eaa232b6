package dialect

import "time"

// insertColumns are the columns that a producer fills. All others have
// defaults.
const (
	insertColumns     = "(message_id, topic, message_key, payload, headers, available_at, priority)"
	insertColumnCount = 7
)

// insertParts cuts rows into parts that have at most maxRows, and at most
// maxBytes of payload unless it is a single row, and makes a query of each.
func insertParts(rows []Row, maxRows, maxBytes int, query func([]Row) Query) []Query {
	var queries []Query
	for len(rows) > 0 {
		n := partLength(rows, maxRows, maxBytes)
		queries = append(queries, query(rows[:n]))
		rows = rows[n:]
	}
	return queries
}

func partLength(rows []Row, maxRows, maxBytes int) int {
	bytes := 0
	for i, row := range rows {
		bytes += len(row.Payload)
		if i > 0 && (i == maxRows || bytes > maxBytes) {
			return i
		}
	}
	return len(rows)
}

// nullable is the text, or NULL if it is empty.
func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// nullableBytes keeps an empty payload apart from none: some drivers send a
// nil slice as an empty value.
func nullableBytes(bytes []byte) any {
	if bytes == nil {
		return nil
	}
	return bytes
}

// roundUp is the first time in UTC that the column can hold and that isn't
// before this one.
func roundUp(at time.Time, unit time.Duration) time.Time {
	return at.UTC().Add(unit - 1).Truncate(unit)
}
