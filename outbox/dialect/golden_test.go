package dialect_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The SQL by which the tables are looked at and their indexes made, to be read by a
// person: a change of it shows in a change of these files.
func TestGoldenSQL(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect.Dialect{dialect.Postgres(), dialect.MySQL(), dialect.MariaDB(), dialect.TiDB(), dialect.Oracle(), dialect.SQLServer(), dialect.SQLite()} {
		t.Run(d.Name(), func(t *testing.T) {
			t.Parallel()
			table := mustTable(t, "app.Events")
			b := &text{}
			b.add("schema version", d.SchemaVersion(table))
			b.add("make indexes for rows", d.MakeRowIndexes(table)...)
			b.add("drop indexes for rows", d.DropRowIndexes(table)...)
			b.add("count indexes for rows", d.RowIndexes(table))
			file := filepath.Join("testdata", d.Name()+"_schema.sql")
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || b.String() != string(want) {
				t.Errorf("the statements differ from %s (%v); if that is meant, run go test ./outbox/dialect -update and look at the change", file, err)
			}
		})
	}
}

// text collects statements.
type text struct{ strings.Builder }

func (b *text) add(what string, queries ...dialect.Query) {
	fmt.Fprintf(b, "-- %s\n", what)
	for _, query := range queries {
		fmt.Fprintf(b, "%s%s\n", query.SQL, ending(query.SQL))
		for i, arg := range query.Args {
			fmt.Fprintf(b, "--   %d: %.100s\n", i+1, strings.TrimSpace(fmt.Sprint(arg)))
		}
	}
	b.WriteString("\n")
}

// ending is what a script has after the statement: a block has a line of its own.
func ending(sql string) string {
	if strings.HasSuffix(sql, "END;") {
		return "\n/"
	}
	return ";"
}

func TestErrorsAreRecognised(t *testing.T) {
	t.Parallel()
	postgres, sqlite := dialect.Postgres(), dialect.SQLite()
	tests := []struct {
		what string
		is   func(error) bool
		err  error
		want bool
	}{
		{"deadlock", postgres.Busy, state("40P01"), true},
		{"serialization failure, wrapped", postgres.Busy, fmt.Errorf("settle: %w", state("40001")), true},
		{"unique violation", postgres.Busy, state("23505"), false},
		{"undefined table", postgres.Missing, state("42P01"), true},
		{"no right", postgres.Denied, state("42501"), true},
		{"no state", postgres.Busy, fmt.Errorf("40001"), false},
		{"no error", postgres.Busy, nil, false},
		{"locked", sqlite.Busy, fmt.Errorf("database is locked (5) (SQLITE_BUSY)"), true},
		{"locked table", sqlite.Busy, fmt.Errorf("database table is locked: outbox"), true},
		{"no table", sqlite.Missing, fmt.Errorf("no such table: outbox"), true},
		{"no error", sqlite.Missing, nil, false},
	}
	for _, test := range tests {
		if got := test.is(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", test.what, got, test.want)
		}
	}
}

type state string

func (s state) Error() string    { return "an error with the state " + string(s) }
func (s state) SQLState() string { return string(s) }
