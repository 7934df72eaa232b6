package readme

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// table is a database with an empty outbox.
type table struct {
	testdb.Database
	dialect dialect.Dialect
}

func openTable(t testing.TB, target testdb.Target) table {
	t.Helper()
	db := table{Database: target.OpenOutbox(t)}
	var err error
	db.dialect, err = dialect.ByName(db.Kind)
	check(t, err)
	return db
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
