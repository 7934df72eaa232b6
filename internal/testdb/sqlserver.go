package testdb

import (
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"

	_ "github.com/microsoft/go-mssqldb" // driver "sqlserver"
)

// SQLServer is the value of Target.Kind for SQL Server.
const SQLServer = "sqlserver"

func onSQLServer() []Target {
	const variable = "ROWRELAY_TEST_SQLSERVER"
	return given(Target{
		product: "SQL Server",
		version: "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(40))",
		module:  "github.com/microsoft/go-mssqldb",
		Name:    "sqlserver/mssqldb",
		Kind:    SQLServer,
		Driver:  "sqlserver",
		missing: missingServer(variable),
		create: func(t testing.TB) (string, string) {
			t.Helper()
			dsn := createSQLServer(t, os.Getenv(variable))
			return dsn, dsn
		},
	})
}

// createSQLServer creates an empty database that compares texts case-insensitively, and returns its
// URL.
func createSQLServer(t testing.TB, server string) string {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal("the test server's URL is malformed; it is not shown because it has a password")
	}
	name := "rowrelay_test_" + strings.ToLower(rand.Text())
	execute(t, "sqlserver", server, "CREATE DATABASE "+name+" COLLATE Latin1_General_100_CI_AS")
	execute(t, "sqlserver", server, "ALTER DATABASE "+name+" SET ALLOW_SNAPSHOT_ISOLATION ON")
	t.Cleanup(func() {
		execute(t, "sqlserver", server, "ALTER DATABASE "+name+" SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE "+name)
	})
	query := address.Query()
	query.Set("database", name)
	address.RawQuery = query.Encode()
	return address.String()
}
