package bind

import "strings"

// SQLServerList is JSON for OPENJSON: there may be no more than 2,100 parameters. Blanks at
// its end see to it that a list has one of two types: the server keeps a plan for each type
// of a parameter, and the driver declares nvarchar of just the length that a text has, up
// to 4,000.
func SQLServerList[T any](items []T) string {
	text := JSON(items)
	units := 0 // of UTF-16
	for _, r := range text {
		units++
		if r > 0xFFFF {
			units++
		}
	}
	switch {
	case len(items) == 0 || units > 4000:
		return text
	case units <= 500:
		return text + strings.Repeat(" ", 500-units)
	default:
		return text + strings.Repeat(" ", 4001-units)
	}
}
