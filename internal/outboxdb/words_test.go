package outboxdb_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// sqliteKeywords is the list of keywords in SQLite's documentation. PostgreSQL has a function that
// returns its keywords.
const sqliteKeywords = `abort action add after all alter always analyze and as asc attach autoincrement before begin
	between by cascade case cast check collate column commit conflict constraint create cross current current_date
	current_time current_timestamp database default deferrable deferred delete desc detach distinct do drop each else
	end escape except exclude exclusive exists explain fail filter first following for foreign from full generated glob
	group groups having if ignore immediate in index indexed initially inner insert instead intersect into is isnull
	join key last left like limit match materialized natural no not nothing notnull null nulls of offset on or order
	others outer over partition plan pragma preceding primary query raise range recursive references regexp reindex
	release rename replace restrict returning right rollback row rows savepoint select set table temp temporary then
	ties to transaction trigger unbounded union unique update using vacuum values view virtual when where window with
	without`

// Any word may be a table's name, because keywords are quoted.
func TestEveryKeywordCanNameATable(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Each() {
		if target.Kind != testdb.Postgres && target.Kind != testdb.SQLite {
			continue // on MySQL all names are quoted; other databases have their own lists
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := target.Open(t)
			for _, word := range keywords(t, db) {
				name := tableNamed(t, word).Pending
				for _, sql := range []string{"CREATE TABLE %(id INTEGER)", "INSERT INTO % VALUES (1)", "SELECT id FROM %", "DROP TABLE %"} {
					if _, err := db.DB.ExecContext(t.Context(), strings.ReplaceAll(sql, "%", name)); err != nil {
						t.Errorf("%s: %v", strings.ReplaceAll(sql, "%", name), err)
					}
				}
			}
		})
	}
}

func tableNamed(t *testing.T, name string) dialect.Table {
	t.Helper()
	table, err := dialect.ParseTable(name)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func keywords(t *testing.T, db testdb.Database) []string {
	t.Helper()
	if db.Kind == testdb.SQLite {
		return strings.Fields(sqliteKeywords)
	}
	var words string
	if err := db.DB.QueryRowContext(t.Context(), "SELECT string_agg(word, ' ') FROM pg_get_keywords()").Scan(&words); err != nil {
		t.Fatal(err)
	}
	return strings.Fields(words)
}
