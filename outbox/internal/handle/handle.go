// Package handle checks values that a caller passed as a transaction.
package handle

import (
	"database/sql"
	"reflect"
)

// IsNil reports whether handle is nil or an interface that holds a nil pointer.
func IsNil(handle any) bool {
	v := reflect.ValueOf(handle)
	return handle == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// Begins reports whether handle can begin transactions and is not a transaction itself. It returns true for a *sql.DB, a *sqlx.DB
// and a *pgxpool.Pool. It returns false for a bun.Tx, a transaction that can begin nested ones.
func Begins(handle any) bool {
	if _, tx := handle.(*sql.Tx); tx {
		return false
	}
	t := reflect.TypeOf(handle)
	_, begins := t.MethodByName("BeginTx")
	_, commits := t.MethodByName("Commit")
	return begins && !commits
}
