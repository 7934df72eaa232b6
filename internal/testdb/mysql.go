package testdb

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql" // driver "mysql"
)

// The values of Target.Kind for the databases in MySQL's family.
const (
	MySQL   = "mysql"
	MariaDB = "mariadb"
)

func onMySQL() []Target {
	targets := []Target{
		mysql("mariadb1011", "gosql", MariaDB),
		mysql("mariadb1011", "prepared", MariaDB),
		mysql("mariadb105", "gosql", MariaDB),
		mysql("mysql", "gosql", MySQL).withoutRequiring(),
	}
	if slices.Contains(sql.Drivers(), "gomysql-utc") {
		targets = append(targets, mysql("mariadb1011", "gomysql", MariaDB))
	}
	return slices.Concat(targets, given(mysql("mysql80", "gosql", MySQL)), given(mysql("mariadb114", "gosql", MariaDB)), given(mysql("mariadb118", "gosql", MariaDB)))
}

// mysql returns a target for a server of MySQL's family. The argument name selects a driver and its
// settings. With "gosql", go-sql-driver puts arguments into the text of statements, as it does in the
// rowrelay command. With "prepared", go-sql-driver lets the server prepare statements. "gomysql"
// selects the driver of go-mysql, which needs the linker flags of the Makefile's test target.
func mysql(server, name, kind string) Target {
	variable := "ROWRELAY_TEST_" + strings.ToUpper(server)
	target := Target{
		Name: server + "/" + name, Kind: kind, Driver: "mysql", module: "github.com/go-sql-driver/mysql",
		product: map[string]string{MySQL: "MySQL", MariaDB: "MariaDB"}[kind], version: "SELECT version()", missing: missingServer(variable),
	}
	if name == "gomysql" {
		target.Driver, target.module = "gomysql-utc", "github.com/go-mysql-org/go-mysql"
	}
	target.create = func(t testing.TB) (string, string) {
		t.Helper()
		address, err := url.Parse(os.Getenv(variable))
		if err != nil {
			t.Fatal("the test server's URL is malformed; it is not shown because it has a password")
		}
		address.Path = "/" + createMySQL(t, mysqlSettings(address))
		return mysqlDSN(name, address), address.String()
	}
	return target
}

func mysqlDSN(driver string, address *url.URL) string {
	if driver == "gomysql" {
		return address.User.String() + "@" + address.Host + address.Path + "?clientFoundRows=true"
	}
	settings := mysqlSettings(address)
	settings.InterpolateParams = driver == "gosql"
	settings.ClientFoundRows = driver == "gosql" // false with "prepared", as it is by default in applications
	return settings.FormatDSN()
}

// mysqlSettings returns settings that the rowrelay command also uses.
func mysqlSettings(address *url.URL) *driver.Config {
	config := driver.NewConfig()
	config.User = address.User.Username()
	config.Passwd, _ = address.User.Password()
	config.Net, config.Addr = "tcp", address.Host
	config.DBName = strings.TrimPrefix(address.Path, "/")
	config.ParseTime, config.Loc = true, time.UTC
	config.ClientFoundRows = true
	config.Params = map[string]string{"time_zone": "'+00:00'"}
	return config
}

// createMySQL creates an empty database and returns its name. By default the database compares
// texts case-insensitively.
func createMySQL(t testing.TB, server *driver.Config) string {
	t.Helper()
	keepAdmin(t, "mysql", server.FormatDSN())
	name := "rowrelay_test_" + strings.ToLower(rand.Text())
	execute(t, "mysql", server.FormatDSN(), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")
	t.Cleanup(func() { execute(t, "mysql", server.FormatDSN(), "DROP DATABASE "+name) })
	return name
}
