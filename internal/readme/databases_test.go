package readme

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// drivers has the usual names of drivers. Its keys are the ends of targets' names.
var drivers = map[string]string{
	"pgx": "pgx (stdlib)", "relaypgx": "pgx, and its pages by relaypgx", "pq": "lib/pq", "modernc": "modernc.org/sqlite (pure Go)", "mattn": "mattn/go-sqlite3 (cgo)",
	"gosql": "go-sql-driver/mysql", "prepared": "go-sql-driver/mysql, statements prepared", "gomysql": "go-mysql-org/go-mysql",
	"mssqldb": "microsoft/go-mssqldb", "go-ora": "sijms/go-ora",
}

// unrun has databases with golden SQL on which the suite has not run, by the name of the
// golden file.
var unrun = map[string][]string{
	"mysql":     {"MySQL 8.0.13 and later"},
	"mariadb":   {"MariaDB 10.5 and later"},
	"sqlserver": {"SQL Server 2016 and later, Azure SQL"},
	"oracle":    {"Oracle 12.2 and later"},
}

// dialectPages has the pages in the folder of dialects, by the kind of database.
var dialectPages = map[string]string{
	"postgres": "POSTGRES.md", "sqlite": "SQLITE.md", "mysql": "MYSQL.md", "mariadb": "MYSQL.md",
	"sqlserver": "SQLSERVER.md", "oracle": "ORACLE.md",
}

// databases renders the table of databases. It reads the record of passed checks, which the
// suite verifies, and adds databases that have only golden SQL.
func databases(t testing.TB) string {
	t.Helper()
	suite := read(t, "relay/sqlstore/store_test.go").text
	if !strings.Contains(suite, "storetest.Run(") || !strings.Contains(suite, "testdb.Targets()") {
		t.Error("relay/sqlstore/store_test.go no longer runs storetest on all of testdb's targets")
	}
	runs, err := testdb.Runs()
	check(t, err)
	var lines strings.Builder
	lines.WriteString("| database | driver | what has run |\n| --- | --- | --- |\n")
	ran := map[string]bool{}
	for _, target := range testdb.Targets() {
		ran[target.Kind] = true
	}
	for _, run := range runs {
		server, driver, _ := strings.Cut(run.Target, "/")
		if drivers[driver] == "" {
			t.Errorf("driver %s of %s has no entry in drivers", driver, run.Target)
		}
		ran[kindOf(server)], ran[server] = true, true
		_, version, _ := strings.Cut(run.Driver, " ")
		fmt.Fprintf(&lines, "| %s | %s %s | conformance suite: %s, %s |\n", named(t, run.Server, kindOf(server)), drivers[driver], version, passed(run), run.Date)
	}
	lines.WriteString(unrunLines(t, ran))
	return lines.String()
}

// passed returns a text with the number of checks that passed. A check doesn't apply if it
// needs several open writers, SKIP LOCKED or lanes, and the database doesn't have these.
func passed(run testdb.Run) string {
	if run.Passed == run.Of {
		return fmt.Sprintf("all %d checks", run.Of)
	}
	return fmt.Sprintf("all %d checks that apply, of %d", run.Passed, run.Of)
}

// kindOf returns a server's name without its version.
func kindOf(server string) string { return strings.TrimRight(server, "0123456789") }

// named returns a database's name, as a link to its page if the page exists.
func named(t testing.TB, name, kind string) string {
	page, anchor, _ := strings.Cut(dialectPages[kind], "#")
	if found, err := filepath.Glob(filepath.Join(root, "outbox/dialect", cmp.Or(page, "none"))); err != nil || len(found) == 0 {
		return name
	}
	if anchor != "" {
		page += "#" + anchor
	}
	return fmt.Sprintf("[%s](../outbox/dialect/%s)", name, page)
}

// unrunLines returns the table's lines for golden files whose SQL no suite has run.
func unrunLines(t testing.TB, ran map[string]bool) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "outbox/dialect/testdata/*.sql"))
	check(t, err)
	var lines strings.Builder
	for _, file := range files {
		kind := strings.TrimSuffix(filepath.Base(file), ".sql")
		if ran[kind] {
			continue
		}
		if len(unrun[kind]) == 0 {
			t.Errorf("%s is the SQL of a database that unrun lacks", file)
		}
		for _, name := range unrun[kind] {
			fmt.Fprintf(&lines, "| %s | | golden SQL only: no test has run on such a server |\n", named(t, name, kind))
		}
	}
	return lines.String()
}

// settings renders the table of a dialect's session settings for its page.
func settings(d dialect.Dialect) func(testing.TB) string {
	return func(testing.TB) string {
		var lines strings.Builder
		lines.WriteString("| setting | the command sets | because | a store refuses |\n| --- | --- | --- | --- |\n")
		for _, s := range dialect.Settings(d) {
			name := "`" + s.Name + "`"
			if s.Only != "" {
				name += map[string]string{"mysql": " (MySQL)", "mariadb": " (MariaDB)"}[s.Only]
			}
			fmt.Fprintf(&lines, "| %s | `%s` | %s | %s |\n", name, s.Value, s.Why, s.Refused)
		}
		return lines.String()
	}
}
