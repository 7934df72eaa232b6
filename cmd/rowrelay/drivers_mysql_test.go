package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func TestMySQLURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // from URLs to the driver's DSNs, without the parameters that all DSNs have
		"mysql://u:p%2F%40@h/d":                              "u:p/@@tcp(h:3306)/d?tls=preferred",
		"mariadb://u@[::1]:3307/d%20e?tls=false":             "u@tcp([::1]:3307)/d%20e?tls=false",
		"mysql:///d?parseTime=1&time_zone=%2B00:00":          "tcp(127.0.0.1:3306)/d?tls=preferred",
		"mysql://u@h/d?readTimeout=3s&compress=true&loc=utc": "u@tcp(h:3306)/d?readTimeout=3s&tls=preferred",
		"mysql://u@/d?socket=/run/mysqld/mysqld.sock":        "u@unix(/run/mysqld/mysqld.sock)/d",
		"mysql://u@h/d?timeout=1s&clientFoundRows=True":      "u@tcp(h:3306)/d?timeout=1s&tls=preferred",
	} {
		settings, err := mysqlSettings(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !settings.ParseTime || settings.Loc.String() != "UTC" || !settings.ClientFoundRows || !settings.InterpolateParams ||
			settings.MultiStatements || settings.Timeout == 0 || settings.ConnectionAttributes != "program_name:rowrelay" {
			t.Errorf("%s: %s", text, settings.FormatDSN())
		}
		settings.Params, settings.ConnectionAttributes = nil, ""
		got := settings.FormatDSN()
		for _, same := range []string{"allowFallbackToPlaintext=true&", "charset=utf8mb4&", "charset=utf8mb4", "clientFoundRows=true&", "interpolateParams=true&", "parseTime=true&", "parseTime=true", "compress=true&", "timeout=10s&", "&timeout=10s", "?timeout=10s"} {
			got = strings.Replace(got, same, "", 1)
		}
		if got = strings.TrimRight(got, "?&"); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestMySQLRefusesParameters(t *testing.T) {
	t.Parallel()
	for parameters, want := range map[string]string{
		"parseTime=false":                    "the parameter parseTime must be true: leave it out",
		"loc=Local":                          "the parameter loc must be UTC",
		"time_zone=%27Europe/Berlin%27":      "the parameter time_zone must be '+00:00'",
		"clientFoundRows=0":                  "the parameter clientFoundRows must be true",
		"multiStatements=true":               "the parameter multiStatements must be false",
		"interpolateParams=false":            "the parameter interpolateParams must be true",
		"charset=latin1":                     "the parameter charset must be utf8mb4",
		"sql_mode=%27%27":                    "the parameter sql_mode must be 'TRADITIONAL'",
		"tx_isolation=%27REPEATABLE-READ%27": "the parameter tx_isolation must be 'READ-COMMITTED'",
		"strict=true":                        "the parameter strict is unknown: it must be one of allow",
		"parsetime=true":                     "the parameter parsetime is unknown",
		"tls=false&tls=true":                 "the parameter tls is given twice",
		"tls=special":                        "special",
		"tls=false&ca_file=a.pem":            "the parameter tls=false contradicts ca_file",
		"ca_file=/no/such/file":              "no such file",
		"cert_file=a.pem":                    "a client's certificate and its key belong together",
		"readTimeout=fast":                   "fast",
		"compress=perhaps":                   "invalid bool value: perhaps",
		"tls=%zz":                            "percent-encoded",
		"allowAllFiles=true":                 "is unknown",
		"timeout=1s;readTimeout=1s":          "percent-encoded",
		"transaction_isolation=READ-COMMITTED&multiStatements=true": "multiStatements",
	} {
		database, err := config.ParseDatabase("mysql://u:hunter2@127.0.0.1:1/d?" + parameters)
		if err != nil {
			t.Fatal(err)
		}
		_, err = openMySQL(t.Context(), database, pool{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q in it", parameters, err, want)
		}
	}
}

// onMySQL runs a test on each MySQL and MariaDB server.
func onMySQL(t *testing.T, test func(t *testing.T, db testdb.Database)) {
	t.Helper()
	for _, target := range testdb.Targets() {
		if kind := target.Kind; kind != testdb.MySQL && kind != testdb.MariaDB || !strings.HasSuffix(target.Name, "/gosql") {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			test(t, target.Open(t))
		})
	}
}

func openMySQLTest(t *testing.T, address string) (*sql.DB, error) {
	t.Helper()
	database, err := config.ParseDatabase(address)
	if err != nil {
		t.Fatal(err)
	}
	db, err := openMySQL(t.Context(), database, pool{})
	if err == nil {
		t.Cleanup(func() { _ = db.Close() })
	}
	return db, err
}

// hostileMySQL has server defaults that differ from the settings that the command needs.
var hostileMySQL = map[string]string{
	"transaction_isolation": "'SERIALIZABLE'", "tx_isolation": "'SERIALIZABLE'", "completion_type": "'CHAIN'", "sql_mode": "'ANSI'", "range_optimizer_max_mem_size": "1",
	"autocommit": "0", "sql_safe_updates": "1", "sql_select_limit": "1", "sql_big_selects": "0", "time_zone": "'-11:00'", "max_execution_time": "1", "max_statement_time": "1",
	"character_set_client": "latin1", "character_set_connection": "latin1", "character_set_results": "latin1",
}

// Each connection of the command has all its settings, whatever the server's defaults are.
func TestEveryMySQLConnectionIsSetUp(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db testdb.Database) {
		config, err := mysqlSettings(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		expected, err := db.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = expected.Close() }()
		read := func(of *sql.Conn, name string) (value string) {
			t.Helper()
			if err := of.QueryRowContext(t.Context(), "SELECT @@SESSION."+name).Scan(&value); err != nil {
				t.Fatal(err)
			}
			return value
		}
		want := map[string]string{}
		config.Params = map[string]string{}
		for _, setting := range dialect.Settings(dialect.MySQL()) {
			if setting.Only == "" || setting.Only == db.Kind {
				for _, value := range []string{hostileMySQL[setting.Name], setting.Value} {
					if _, err := expected.ExecContext(t.Context(), "SET SESSION "+setting.Name+" = "+value); err != nil {
						t.Fatal(err)
					}
					if got := read(expected, setting.Name); got == want[setting.Name] {
						t.Fatalf("%s = %s has no effect: the value is still %s", setting.Name, value, got)
					} else {
						want[setting.Name] = got
					}
				}
				config.Params[setting.Name] = hostileMySQL[setting.Name]
			}
		}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			t.Fatal(err)
		}
		pool := sql.OpenDB(session{connector, sessionSettings(0)})
		defer func() { _ = pool.Close() }()
		for range maxConnections { // hold all connections
			connection, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = connection.Close() }()
			for name, want := range want {
				if got := read(connection, name); got != want {
					t.Errorf("%s: got %s, want %s", name, got, want)
				}
			}
		}
		const limit = 2 * time.Second // the limit for the page's reads
		pages := sql.OpenDB(session{connector, sessionSettings(limit)})
		defer func() { _ = pages.Close() }()
		name, limited := "max_execution_time", "2000"
		if db.Kind == testdb.MariaDB {
			name, limited = "max_statement_time", "2"
		}
		page, err := pages.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = page.Close() }()
		if got := read(page, name); got != limited {
			t.Errorf("with a limit of %v, %s is %s", limit, name, got)
		}
	})
}

// If a mysql:// URL is used for a MariaDB server, or a mariadb:// URL for MySQL, the error names the right
// scheme.
func TestMySQLURLWithTheWrongScheme(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db testdb.Database) {
		own, rest, _ := strings.Cut(db.URL, "://")
		other := map[string]string{testdb.MySQL: testdb.MariaDB, testdb.MariaDB: testdb.MySQL}[own]
		if got := call(t.Context(), "", "status", "--database", other+"://"+rest); !strings.Contains(got.stderr, "use a URL that begins with "+own+"://") {
			t.Errorf("%s for %s: %s", other, own, got.stderr)
		}
	})
}

// Without the parameter tls, TLS is used if the server has it. By default, MySQL servers and MariaDB
// servers from 11.4 on have TLS.
func TestMySQLWithTLS(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db testdb.Database) {
		var have, version string
		if err := db.DB.QueryRowContext(t.Context(), "SELECT version()").Scan(&version); err != nil {
			t.Fatal(err)
		}
		hasTLS := db.Kind == testdb.MySQL || !strings.HasPrefix(version, "10.")
		for parameters, fails := range map[string]bool{"": false, "?tls=false": false, "?tls=skip-verify": !hasTLS, "?tls=true": true} {
			pool, err := openMySQLTest(t, db.URL+parameters)
			if fails != (err != nil) {
				t.Errorf("%q: %v", parameters, err)
			}
			if err != nil {
				continue
			}
			if err := pool.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'Ssl_cipher'").Scan(new(string), &have); err != nil {
				t.Fatal(err)
			}
			if encrypted := hasTLS && parameters != "?tls=false"; encrypted != (have != "") {
				t.Errorf("%q: the cipher is %q", parameters, have)
			}
		}
	})
}

func TestMySQLErrorsHaveHints(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db testdb.Database) {
		name := "u_" + strings.ToLower(rand.Text()[:16])
		execute(t, db.DB, "CREATE USER "+name+"@'%' IDENTIFIED BY 'hunter2'")
		t.Cleanup(func() {
			if _, err := db.DB.ExecContext(context.Background(), "DROP USER "+name+"@'%'"); err != nil {
				t.Error(err)
			}
		})
		for want, change := range map[string]func(*url.URL){
			"check the user and password":    func(u *url.URL) { u.User = url.UserPassword(name, "hunter22") },
			"no privileges on this database": func(u *url.URL) { u.User = url.UserPassword(name, "hunter2") },
			"the database doesn't exist":     func(u *url.URL) { u.Path = "/no_such_database" },
			"check the host and port":        func(u *url.URL) { u.Host = "127.0.0.1:1" },
		} {
			address := withURL(t, db, change)
			database, err := config.ParseDatabase(address)
			if err != nil {
				t.Fatal(err)
			}
			_, err = openMySQLTest(t, address)
			if err == nil {
				t.Errorf("the database opens, want the error %q", want)
				continue
			}
			if told := connectError(database, err).Error(); !strings.Contains(told, want) || strings.Contains(told, "hunter2") {
				t.Errorf("got %s, want %q in it", told, want)
			}
		}
	})
}

// A server ends the transaction of a relay that it doesn't hear from, as if the network dropped the relay's packets. Otherwise
// the transaction's locks would keep other relays from the relay's lanes for hours.
func TestMySQLReleasesTheLocksOfASilentRelay(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db testdb.Database) {
		database, err := config.ParseDatabase(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		relays, err := openMySQL(t.Context(), database, pool{idle: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = relays.Close() }()
		if _, err := db.DB.ExecContext(t.Context(), "CREATE TABLE locked (id int PRIMARY KEY)"); err != nil {
			t.Fatal(err)
		}
		silent, err := relays.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Rollback() }()
		if _, err := silent.ExecContext(t.Context(), "INSERT INTO locked VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.DB.ExecContext(t.Context(), "INSERT INTO locked VALUES (1)"); err != nil { // waits for the lock
			t.Errorf("the lock is still held: %v", err)
		}
	})
}
