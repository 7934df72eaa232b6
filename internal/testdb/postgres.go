package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "github.com/lib/pq"              // driver "postgres"
)

// Postgres is the value of Target.Kind for PostgreSQL.
const Postgres = "postgres"

func onPostgres() []Target {
	targets := []Target{
		postgres("postgres15", "pgx", "pgx"),
		repeated(postgres("postgres15", "pq", "postgres")),
		repeated(postgres("postgres18", "pgx", "pgx")),
		postgres("postgres18", "pq", "postgres"),
	}
	for _, server := range []string{"postgres13", "postgres14", "postgres16", "postgres17", "postgres19"} {
		targets = append(targets, given(postgres(server, "pgx", "pgx"))...)
	}
	return targets
}

func postgres(server, driverName, driver string) Target {
	variable := "ROWRELAY_TEST_" + strings.ToUpper(server)
	from := func(template func(testing.TB) string) func(testing.TB) (string, string) {
		return func(t testing.TB) (string, string) {
			t.Helper()
			keepAdmin(t, driver, os.Getenv(variable))
			url := createDatabase(t, driver, os.Getenv(variable), template(t))
			return withoutJIT(url), url
		}
	}
	return Target{
		Name:         server + "/" + driverName,
		Kind:         Postgres,
		product:      "PostgreSQL",
		version:      "SHOW server_version",
		module:       map[string]string{"pgx": "github.com/jackc/pgx/v5", "pq": "github.com/lib/pq"}[driverName],
		Driver:       driver,
		missing:      missingServer(variable),
		create:       from(func(testing.TB) string { return "template0" }), // template0 accepts no connections, so it can be copied at any time
		createOutbox: from(func(t testing.TB) string { return outboxTemplate(t, driver, os.Getenv(variable)) }),
	}
}

// withoutJIT turns the JIT compiler off, as the rowrelay command does. Otherwise rowrelay check would
// report that the compiler is on.
func withoutJIT(dsn string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&jit=off"
	}
	return dsn + "?jit=off"
}

// createDatabase copies a database on the server and returns the copy's URL.
func createDatabase(t testing.TB, driver, server, template string) string {
	t.Helper()
	name := "rowrelay_test_" + strings.ToLower(rand.Text())
	execute(t, driver, server, "CREATE DATABASE "+name+" TEMPLATE "+template+strategy(t, driver, server))
	t.Cleanup(func() { execute(t, driver, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	return onServerOf(t, server, name)
}

// strategy returns the option with which a server copies a database's files. By default, servers from version 15 on copy each
// page through the WAL. If a server's data are in memory, this takes twice as long as copying files. Older servers always copy files.
func strategy(t testing.TB, driver, server string) string {
	t.Helper()
	pool, release := admin(t, driver, server)
	defer release()
	var version int
	if err := pool.QueryRowContext(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatalf("ask the test server for its version: %v", err)
	}
	if version < 150000 {
		return ""
	}
	return " STRATEGY file_copy"
}

// onServerOf returns the URL of another database on the same server.
func onServerOf(t testing.TB, server, name string) string {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal("the test server's URL is malformed; it is not shown because it has a password")
	}
	address.Path = "/" + name
	return address.String()
}

// outboxTemplate returns the name of a database with the tables of an outbox, from which other
// databases are copied. This template is created once per server and never dropped. Its name
// contains a fingerprint of the migrations.
func outboxTemplate(t testing.TB, driver, server string) string {
	t.Helper()
	name := "rowrelay_template_" + printed(t, Postgres)
	ready := "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '" + name + "' AND NOT datallowconn)"
	pool, release := admin(t, driver, server)
	defer release()
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatalf("connect to the test server: %v", err)
	}
	defer func() { _ = conn.Close() }()
	var is bool
	ask := func() {
		if err := conn.QueryRowContext(t.Context(), ready).Scan(&is); err != nil {
			t.Fatalf("look for %s: %v", name, err)
		}
	}
	if ask(); is {
		return name
	}
	do := func(statement string) {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	do("SELECT pg_advisory_lock(767693)") // only one of several concurrent tests creates the template
	defer do("SELECT pg_advisory_unlock(767693)")
	if ask(); !is {
		do("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)") // an interrupted run leaves an incomplete database
		do("CREATE DATABASE " + name + " TEMPLATE template0")
		pool, err := sql.Open(driver, onServerOf(t, server, name))
		if err != nil {
			t.Fatal(err)
		}
		migrate(t, pool, Postgres)
		_ = pool.Close()
		for connected := true; connected; { // wait until all sessions have ended, because a database with sessions can't be copied
			if err := conn.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '"+name+"' AND backend_type = 'client backend')").Scan(&connected); err != nil {
				t.Fatal(err)
			}
		}
		do("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false") // keeps the template free of connections, so that it can be copied
	}
	return name
}

// execute executes a statement on a server. It uses its own context, because a test's context has
// ended when cleanups run.
func execute(t testing.TB, driver, dsn, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	pool, release := admin(t, driver, dsn)
	defer release()
	if _, err := pool.ExecContext(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// admins has the pools that create and drop databases, by driver and server. Tests share the pools,
// because opening a connection for each statement would cost as much as the statement.
var admins = struct {
	mu    sync.Mutex
	pools map[string]*sql.DB
	users map[string]int
}{pools: map[string]*sql.DB{}, users: map[string]int{}}

// admin opens a server's pool, or returns the pool that is already open. The last call of
// release closes the pool.
func admin(t testing.TB, driver, dsn string) (pool *sql.DB, release func()) {
	t.Helper()
	admins.mu.Lock()
	defer admins.mu.Unlock()
	name := driver + " " + dsn
	if admins.users[name] == 0 {
		pool, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatalf("open the test server: %v", err)
		}
		admins.pools[name] = pool
	}
	admins.users[name]++
	return admins.pools[name], func() {
		admins.mu.Lock()
		defer admins.mu.Unlock()
		if admins.users[name]--; admins.users[name] == 0 {
			_ = admins.pools[name].Close()
		}
	}
}

// keepAdmin keeps the server's pool open while the test has its database.
func keepAdmin(t testing.TB, driver, dsn string) {
	t.Helper()
	_, release := admin(t, driver, dsn)
	t.Cleanup(release)
}
