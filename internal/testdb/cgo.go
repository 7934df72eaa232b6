//go:build cgo

package testdb

import "github.com/mattn/go-sqlite3"

const hasCgo = true

// mattnName returns the name of the target that uses mattn/go-sqlite3. make proof-versions builds the tests
// with an old version of this driver, which contains the oldest supported SQLite.
func mattnName() string {
	if _, version, _ := sqlite3.Version(); version < 3_036_000 {
		return "sqlite335/mattn"
	}
	return "sqlite/mattn"
}
