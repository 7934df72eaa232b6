package dialect

import (
	"fmt"
	"strings"
	"time"
)

// sqliteIn is a time from now; the placeholder takes what sqliteSeconds returns.
const sqliteIn = "strftime('%Y-%m-%d %H:%M:%f', 'now', ?)"

func sqliteSeconds(by time.Duration) string {
	return fmt.Sprintf("%+.3f seconds", by.Seconds())
}

// sqliteQuery numbers no placeholders: arguments come in their order.
func sqliteQuery(sql string, args ...any) Query {
	return Query{SQL: strings.TrimSpace(sql), Args: args}
}
