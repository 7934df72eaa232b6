package main

import (
	"bytes"
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Whatever the database's settings are, sessions on PostgreSQL don't use JIT, and pgx can read and write values as text.
func TestEveryPostgresConnectionIsSetUp(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Driver != "pgx" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			own := target.Open(t)
			var name string
			if err := own.DB.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
				t.Fatal(err)
			}
			hostile := map[string]string{"jit": "on", "datestyle": "SQL, DMY", "bytea_output": "escape", "standard_conforming_strings": "off", "client_encoding": "LATIN1"}
			for _, setting := range dialect.Settings(dialect.Postgres()) {
				if _, err := own.DB.ExecContext(t.Context(), "ALTER DATABASE "+name+" SET "+setting.Name+" = '"+hostile[setting.Name]+"'"); err != nil && !isUnsupported(err) {
					t.Fatal(err) // the test also fails if hostile lacks a setting
				}
			}
			for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} { // the last two send values as text
				address, err := url.Parse(own.URL)
				if err != nil {
					t.Fatal("the test server's URL is malformed; it is not shown because it has a password")
				}
				query := address.Query()
				query.Set("default_query_exec_mode", mode)
				address.RawQuery = query.Encode()
				database, err := config.ParseDatabase(address.String())
				if err != nil {
					t.Fatal(err)
				}
				db, _, err := openDatabase(t.Context(), database, pool{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = db.Close() }()
				for _, setting := range dialect.Settings(dialect.Postgres()) {
					var got string
					if err := db.QueryRowContext(t.Context(), "SELECT current_setting('"+setting.Name+"')").Scan(&got); err != nil || !strings.HasPrefix(got, setting.Value) { // DateStyle is reported as "ISO, DMY"
						t.Errorf("%s: %s is %s, %v, want %s", mode, setting.Name, got, err, setting.Value)
					}
				}
				var text string
				var at time.Time
				var payload []byte
				err = db.QueryRowContext(t.Context(), `SELECT now(), decode('00ff', 'hex'), $1::text`, `日\b'`).Scan(&at, &payload, &text)
				if err != nil || at.IsZero() || !bytes.Equal(payload, []byte{0, 255}) || text != `日\b'` {
					t.Errorf("%s: now %v, payload %q, text %q, %v", mode, at, payload, text, err)
				}
			}
		})
	}
}

// isUnsupported reports whether the server refused a setting as unsupported: PostgreSQL 19 always has standard_conforming_strings on.
func isUnsupported(err error) bool { return strings.Contains(err.Error(), "SQLSTATE 0A000") }

func TestPragmasThatWereNotSetAreErrors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	for parameters, want := range map[string]string{
		"":                           "journal_mode=WAL, it has delete",
		"?_pragma=journal_mode(WAL)": "busy_timeout=10000, it has 0",
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)":       "synchronous=FULL, it has 1",
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_journal_mode=WAL&_foreign_keys=0": "foreign_keys=1, it has 0",
	} {
		db, err := sql.Open("sqlite", "file:"+path+parameters)
		if err != nil {
			t.Fatal(err)
		}
		if parameters == "" {
			if _, err := db.ExecContext(t.Context(), "PRAGMA journal_mode=DELETE"); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkPragmas(t.Context(), db); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", parameters, err, want)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestEveryConnectionOfAPoolHasThePragmas(t *testing.T) {
	t.Parallel()
	database, err := config.ParseDatabase("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	db, _, err := openDatabase(t.Context(), database, pool{create: true})
	if err != nil {
		t.Fatal(err)
	}
	for range maxConnections { // hold all connections
		connection, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = connection.Close() }()
		var timeout, synchronous int
		if err := connection.QueryRowContext(t.Context(), "SELECT timeout, synchronous FROM pragma_busy_timeout, pragma_synchronous").Scan(&timeout, &synchronous); err != nil || timeout != 10000 || synchronous != 2 {
			t.Errorf("busy_timeout %d, synchronous %d, %v", timeout, synchronous, err)
		}
	}
	defer func() { _ = db.Close() }()
}
