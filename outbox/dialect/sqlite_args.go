package dialect

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const sqliteNow = "strftime('%Y-%m-%d %H:%M:%f', 'now')"

// sqliteIn is a time from now; the placeholder takes what sqliteSeconds returns.
const sqliteIn = "strftime('%Y-%m-%d %H:%M:%f', 'now', ?)"

func sqliteSeconds(by time.Duration) string {
	return fmt.Sprintf("%+.3f seconds", by.Seconds())
}

// sqliteJSON is a list for json_each.
func sqliteJSON[T any](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // numbers, texts and lists of them always have a form
	}
	return string(text)
}

// sqliteQuery numbers no placeholders: arguments come in their order.
func sqliteQuery(sql string, args ...any) Query {
	return Query{SQL: strings.TrimSpace(sql), Args: args}
}

// sqliteItem is the nth value of a list's item.
func sqliteItem(n int) string { return fmt.Sprintf("json_extract(j.value, '$[%d]')", n) }
