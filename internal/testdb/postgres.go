package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "github.com/lib/pq"              // driver "postgres"
)

func postgres(server, driverName, driver string) Target {
	variable := "ROWRELAY_TEST_" + strings.ToUpper(server)
	return Target{
		Name:    server + "/" + driverName,
		Kind:    Postgres,
		Driver:  driver,
		missing: missingServer(variable),
		create: func(t testing.TB) (string, string) {
			t.Helper()
			url := createDatabase(t, driver, os.Getenv(variable))
			return withoutJIT(url), url
		},
	}
}

// withoutJIT turns off, as the rowrelay command does, what a check would tell of.
func withoutJIT(dsn string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&jit=off"
	}
	return dsn + "?jit=off"
}

// createDatabase makes an empty database beside the one that the server's URL
// names, and returns its URL.
func createDatabase(t testing.TB, driver, server string) string {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal("the test server's URL is malformed; it is not shown because it has a password")
	}
	name := "rowrelay_test_" + strings.ToLower(rand.Text())
	// Nobody can be connected to template0, so it can always be copied.
	execute(t, driver, server, "CREATE DATABASE "+name+" TEMPLATE template0")
	t.Cleanup(func() { execute(t, driver, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	address.Path = "/" + name
	return address.String()
}

// execute has a context of its own, because a test's has ended when its
// cleanups run.
func execute(t testing.TB, driver, dsn, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatalf("open the test server: %v", err)
	}
	defer func() { _ = pool.Close() }()
	if _, err := pool.ExecContext(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
