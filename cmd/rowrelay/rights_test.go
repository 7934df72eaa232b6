package main

import (
	"crypto/rand"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// stranger creates a user without privileges on the tables, and returns the user's name and the
// database's URL for this user.
func stranger(t *testing.T, db testdb.Database) (name, address string) {
	t.Helper()
	name = "rowrelay_" + strings.ToLower(rand.Text()[:16])
	create, drop := "CREATE ROLE "+name+" LOGIN PASSWORD 'hunter2'", "DROP OWNED BY "+name+"; DROP ROLE "+name
	if db.Kind != testdb.Postgres {
		create, drop = "CREATE USER "+name+" IDENTIFIED BY 'hunter2'", "DROP USER "+name
	}
	execute(t, db.DB, create)
	t.Cleanup(func() { executeAtEnd(t, db.DB, drop) })
	if db.Kind != testdb.Postgres { // a user needs some privilege in a database to connect to it
		execute(t, db.DB, "GRANT CREATE TEMPORARY TABLES ON "+nameOf(t, db)+".* TO "+name)
	}
	return name, withURL(t, db, func(u *url.URL) { u.User = url.UserPassword(name, "hunter2") })
}

func nameOf(t *testing.T, db testdb.Database) string {
	t.Helper()
	parsed, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal("the URL is malformed")
	}
	return strings.TrimPrefix(parsed.Path, "/")
}

// grantsIn returns the lines with GRANT statements.
func grantsIn(text string) string {
	return strings.Join(regexp.MustCompile(`(?m)^ +GRANT .*;$`).FindAllString(text, -1), "\n")
}

// A user without USAGE on the schema can't look up any table, but one check prints all statements.
func TestAUserWithoutUsageOnTheSchema(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db.DB, `CREATE SCHEMA "Shop"`)
		mustRun(t, "migrate", "up", "--database", db.URL, "--table", "Shop.outbox")
		_, address := stranger(t, db)
		file := filepath.Join(t.TempDir(), "rowrelay.yaml")
		if err := os.WriteFile(file, []byte("sources: {shop: {database: '"+address+"', table: Shop.outbox}}\nsinks: {lines: {type: stdout}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		hint := "rowrelay check --config " + file + " prints the statements"
		if got := call(t.Context(), "", "status", "--config", file); got.code != exitFailed || !strings.Contains(got.stderr, hint) {
			t.Errorf("status: exit code %d, %s; want %q", got.code, got.stderr, hint)
		}
		got := call(t.Context(), "", "check", "--config", file)
		grants := grantsIn(got.stdout)
		if got.code != exitFailed || !strings.Contains(grants, `GRANT USAGE ON SCHEMA "Shop" TO `) || strings.Contains(got.stdout, "rowrelay check") {
			t.Errorf("check: exit code %d, %s", got.code, got.stdout)
		}
		for grant := range strings.SplitSeq(grants, "\n") {
			execute(t, db.DB, grant)
		}
		if got := call(t.Context(), "", "check", "--config", file).stdout; !strings.Contains(got, "ok    source shop: rights") {
			t.Errorf("with these rights: %s", got)
		}
		mustRun(t, "run", "--config", file, "--drain")
	}, "postgres18/pgx")
}

// If the user lacks a right that adopt needs, the hint is about adopt's rights, and not about a relay's.
func TestAdoptWithoutRights(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "migrate", "up", "--database", db.URL)
		handmadeTable(t, db)
		name, address := stranger(t, db)
		got := call(t.Context(), "", "adopt", "--from", "events", "--plan", "--database", address)
		if got.code != exitFailed || !strings.Contains(got.stderr, "docs/moving.md lists the rights that adopt needs") || strings.Contains(got.stderr, "rowrelay check") {
			t.Errorf("exit code %d: %s", got.code, got.stderr)
		}
		execute(t, db.DB, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+name)
		got = call(t.Context(), "", "adopt", "--from", "events", "--plan", "--database", address)
		if got.code != exitFailed || !strings.Contains(got.stdout, "SQL OF --undo") || !strings.Contains(got.stderr, "the database's user lacks rights: ") || !strings.Contains(got.stderr, "GRANT CREATE ON SCHEMA public") {
			t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
		}
	}, "postgres18/pgx")
}

func TestAUserWithoutRights(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "migrate", "up", "--database", db.URL)
		denied, all := "permission denied", "ALL TABLES IN SCHEMA public"
		if db.Kind != testdb.Postgres {
			denied, all = "denied to user", nameOf(t, db)+".*"
		}
		name, address := stranger(t, db)
		for _, line := range []string{"status", "run --sink discard:", "enqueue", "messages list"} {
			got := call(t.Context(), `{"topic":"a"}`, append(strings.Fields(line), "--database", address)...)
			if told := got.stdout + got.stderr; got.code != exitFailed || !strings.Contains(told, denied) || strings.Contains(told, "hunter2") ||
				!strings.Contains(told, "grant the missing rights to the database's user") {
				t.Errorf("%s: exit code %d, %s", line, got.code, told)
			}
		}

		// One check lists all missing rights, and the statements that it prints are sufficient.
		told := call(t.Context(), "", "check", "--database", address).stdout
		grants := grantsIn(told)
		if !strings.Contains(told, "FAIL  source outbox: rights: this user lacks: ") || strings.Count(grants, "GRANT ") < 9 || strings.Contains(told, "hunter2") {
			t.Errorf("check prints %s", told)
		}
		rich, richAddress := stranger(t, db)
		for grant := range strings.SplitSeq(strings.ReplaceAll(grants, name, rich), "\n") {
			execute(t, db.DB, grant)
		}
		if got := call(t.Context(), "", "check", "--database", richAddress).stdout; !strings.Contains(got, "ok    source outbox: rights") {
			t.Errorf("with these rights: %s", got)
		}
		mustRun(t, "run", "--database", richAddress, "--sink", "discard:", "--drain")

		execute(t, db.DB, "GRANT INSERT ON outbox TO "+name)
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", address) // a producer needs no other rights

		execute(t, db.DB, "GRANT SELECT ON "+all+" TO "+name)
		mustRun(t, "status", "--database", address)
		got := call(t.Context(), "", "check", "--database", address)
		if got.code != exitFailed || !strings.Contains(got.stdout, "FAIL  source outbox: rights: ") {
			t.Errorf("exit code %d, %s", got.code, got.stdout)
		}
	}, "postgres18/pgx", "mysql/gosql", "mariadb1011/gosql", "mariadb105/gosql")
}
