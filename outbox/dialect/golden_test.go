package dialect_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var dialects = []dialect.Dialect{dialect.Postgres(), dialect.MySQL(), dialect.MariaDB(), dialect.Oracle(), dialect.SQLServer(), dialect.SQLite()}

// The golden files contain all SQL of the dialects, so that a reviewer sees each change of it.
// MariaDB has the same SQL as MySQL.
func TestGoldenSQL(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		t.Run(d.Name(), func(t *testing.T) {
			table, inbox := mustTable(t, "app.Events"), mustTable(t, "app.Received")
			b := &text{T: t}
			b.add("insert", d.Insert(table, []dialect.Row{fullRow})...)
			b.add("insert several", d.Insert(table, []dialect.Row{plainRow, fullRow, plainRow, fullRow})...)
			ids := []string{fullRow.MessageID, "0197a3b4-0000-7abc-8def-0123456789ab"}
			b.add("insert ids", d.InsertIDs(table, ids, 42)...)
			b.add("delete ids", d.DeleteIDs(table, ids, 42)...)
			find, deletes := d.Cancel(table, fullRow.MessageID, 5*time.Second)
			b.add("cancel", slices.DeleteFunc(append([]dialect.Query{find}, deletes[:]...), func(q dialect.Query) bool { return q.SQL == "" })...)
			b.add("lock keys", d.LockKeys(table, []string{"b", "a", "b"})...)
			b.add("notify", d.Notify(table)...)
			b.add("written", d.Written(table))
			b.add("receive", d.Receive(inbox, "billing", "0197a3b4-0000-7abc-8def-0123456789ab"))
			b.add("purge received", d.PurgeReceived(inbox, "billing", 7*24*time.Hour, 1000))
			b.add("inbox's version", d.InboxVersion(inbox))
			b.add("schema version", d.SchemaVersion(table))
			b.add("make indexes for rows", d.MakeRowIndexes(table)...)
			b.add("drop indexes for rows", d.DropRowIndexes(table)...)
			b.add("count indexes for rows", d.RowIndexes(table))
			if fitting, ok := d.(dialect.Fitting); ok {
				facts, trial := fitting.Server(table)
				b.add("server", facts)
				if trial != nil {
					b.add("trial", slices.Concat(trial.Begin, []dialect.Query{trial.Hold, trial.Pass}, trial.End)...)
				}
			}
			family := d.Name()
			if family == "mariadb" {
				family = "mysql"
			}
			file := filepath.Join("testdata", family+".sql")
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || b.String() != string(want) {
				t.Errorf("the statements differ from %s (%v); if the change is intended, run go test ./outbox/dialect -update and review the diff", file, err)
			}
		})
	}
}

// text collects statements.
type text struct {
	*testing.T
	strings.Builder
}

func (b *text) add(what string, queries ...dialect.Query) {
	fmt.Fprintf(b, "-- %s\n", what)
	for _, query := range queries {
		ending := ";"
		if strings.HasSuffix(query.SQL, "END;") {
			ending = "\n/" // ends a block, on a line by itself
		}
		fmt.Fprintf(b, "%s%s\n", query.SQL, ending)
		for i, arg := range query.Args {
			fmt.Fprintf(b, "--   %d: %.100s\n", i+1, strings.TrimSpace(fmt.Sprint(arg)))
		}
	}
	b.WriteString("\n")
	if strings.HasSuffix(b.Name(), "/oracle") {
		checkPlaces(b.T, what, queries...)
	}
}

var (
	literals     = regexp.MustCompile(`'[^']*'`)
	placeholders = regexp.MustCompile(`:(\d+)`)
)

// checkPlaces checks that each placeholder occurs once and in the order of its number, because Oracle's drivers bind by
// position.
func checkPlaces(t *testing.T, what string, queries ...dialect.Query) {
	t.Helper()
	for _, query := range queries {
		found := placeholders.FindAllStringSubmatch(literals.ReplaceAllString(query.SQL, "''"), -1)
		if len(found) != len(query.Args) {
			t.Errorf("%s: %d placeholders for %d arguments in %s", what, len(found), len(query.Args), query.SQL)
		}
		for i, place := range found {
			if place[1] != strconv.Itoa(i+1) {
				t.Errorf("%s: %s is placeholder number %d in %s", what, place[0], i+1, query.SQL)
			}
		}
		for _, arg := range query.Args {
			if text, ok := arg.(string); ok && len(text) > 4000 {
				t.Errorf("%s: the driver would send a text of %d bytes as a LONG", what, len(text))
			}
		}
	}
}
