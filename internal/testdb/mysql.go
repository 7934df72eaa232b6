package testdb

import (
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql" // driver "mysql"
)

// mysql is a server of the family. Its drivers are "gosql", which puts arguments
// into the text of statements, as the rowrelay command has it do; "prepared", the
// same driver but the server prepares each statement; and "gomysql", which needs
// what the Makefile's test has.
func mysql(server, name, kind string) Target {
	variable := "ROWRELAY_TEST_" + strings.ToUpper(server)
	target := Target{Name: server + "/" + name, Kind: kind, Driver: "mysql", missing: missingServer(variable)}
	if name == "gomysql" {
		target.Driver = "gomysql-utc"
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
	settings.ClientFoundRows = driver == "gosql" // the other one is as applications have it
	return settings.FormatDSN()
}

// mysqlSettings are what the rowrelay command sets as well.
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

// createMySQL makes an empty database and returns its name. It compares texts
// without regard to case unless it is told otherwise.
func createMySQL(t testing.TB, server *driver.Config) string {
	t.Helper()
	keepAdmin(t, "mysql", server.FormatDSN())
	name := "rowrelay_test_" + strings.ToLower(rand.Text())
	execute(t, "mysql", server.FormatDSN(), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")
	t.Cleanup(func() { execute(t, "mysql", server.FormatDSN(), "DROP DATABASE "+name) })
	return name
}
