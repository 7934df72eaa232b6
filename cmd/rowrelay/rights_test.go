package main

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// stranger makes a user of the server without any right to the tables, and
// returns the database's URL for it.
func stranger(t *testing.T, db testdb.Database) (name, address string) {
	t.Helper()
	name = "rowrelay_test_" + strings.ToLower(rand.Text())
	execute(t, db.DB, "CREATE ROLE "+name+" LOGIN PASSWORD 'hunter2'")
	t.Cleanup(func() { // the test's context has ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := db.DB.ExecContext(ctx, "DROP OWNED BY "+name+"; DROP ROLE "+name); err != nil {
			t.Error(err)
		}
	})
	return name, withURL(t, db, func(u *url.URL) { u.User = url.UserPassword(name, "hunter2") })
}

func TestAUserWithoutRights(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "migrate", "up", "--database", db.URL)
		name, address := stranger(t, db)
		for _, line := range []string{"status", "run --sink discard:", "enqueue", "messages list", "check"} {
			got := call(t.Context(), `{"topic":"a"}`, append(strings.Fields(line), "--database", address)...)
			if told := got.stdout + got.stderr; got.code != exitFailed || !strings.Contains(told, "permission denied") || strings.Contains(told, "hunter2") ||
				!strings.Contains(told, "grant the database's user what it lacks") {
				t.Errorf("%s: exit code %d, %s", line, got.code, told)
			}
		}

		execute(t, db.DB, "GRANT INSERT ON outbox TO "+name)
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", address) // a producer needs no more

		execute(t, db.DB, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+name)
		mustRun(t, "status", "--database", address)
		got := call(t.Context(), "", "check", "--database", address)
		if got.code != exitFailed || !strings.Contains(got.stdout, "FAIL  source outbox: rights: ") {
			t.Errorf("exit code %d, %s", got.code, got.stdout)
		}
	}, "postgres18/pgx")
}
