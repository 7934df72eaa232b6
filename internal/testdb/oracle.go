package testdb

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
)

// Oracle is the value of Target.Kind for Oracle.
const Oracle = "oracle"

// onOracle returns a target whose driver needs the build tag oracle, because the driver is large.
func onOracle() []Target {
	const variable = "ROWRELAY_TEST_ORACLE"
	return given(Target{
		product: "Oracle",
		version: "SELECT max(version) FROM product_component_version",
		module:  "github.com/sijms/go-ora/v2",
		Name:    "oracle/go-ora",
		Kind:    Oracle,
		Driver:  "oracle",
		missing: func() string {
			if !slices.Contains(sql.Drivers(), "oracle") {
				return "this test binary was built without the tag oracle"
			}
			return missingServer(variable)()
		},
		create: func(t testing.TB) (string, string) {
			t.Helper()
			dsn := createOracle(t, os.Getenv(variable))
			return dsn, dsn
		},
	})
}

// createOracle creates a user with an empty schema, which is Oracle's equivalent of a database, and
// returns the URL for that user.
func createOracle(t testing.TB, server string) string {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal("the test server's URL is malformed; it is not shown because it has a password")
	}
	// Older versions limit names to 30 characters.
	name, password := "ROWRELAY_"+rand.Text()[:16], "p"+strings.ToLower(rand.Text())
	execute(t, "oracle", server, "CREATE USER "+name+` IDENTIFIED BY "`+password+`" QUOTA UNLIMITED ON users`)
	t.Cleanup(func() { execute(t, "oracle", server, "DROP USER "+name+" CASCADE") })
	execute(t, "oracle", server, "GRANT CREATE SESSION, CREATE TABLE, CREATE VIEW, CREATE SEQUENCE, CREATE TRIGGER, CREATE PROCEDURE TO "+name)
	// The user must be able to see which transactions are open.
	execute(t, "oracle", server, "GRANT SELECT_CATALOG_ROLE TO "+name)
	address.User = url.UserPassword(name, password)
	return address.String()
}
