package dialect

import "strings"

// SQLite's drivers share no type of error, but all show its own words.

func (sqlite) Busy(err error) bool {
	return says(err, "database is locked", "database table is locked")
}

func (sqlite) Missing(err error) bool {
	return says(err, "no such table", "unknown database")
}

func (sqlite) Denied(err error) bool {
	return says(err, "attempt to write a readonly database")
}

func says(err error, words ...string) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
