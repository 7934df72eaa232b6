// Package handle tells what was given for a transaction.
package handle

import (
	"database/sql"
	"reflect"
)

// IsNil also knows a nil pointer in an interface.
func IsNil(handle any) bool {
	v := reflect.ValueOf(handle)
	return handle == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// Begins says whether a handle begins transactions rather than being one, as a *sql.DB, a *sqlx.DB
// and a *pgxpool.Pool do. A bun.Tx does both.
func Begins(handle any) bool {
	if _, tx := handle.(*sql.Tx); tx {
		return false
	}
	t := reflect.TypeOf(handle)
	_, begins := t.MethodByName("BeginTx")
	_, commits := t.MethodByName("Commit")
	return begins && !commits
}
