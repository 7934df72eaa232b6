// Package table creates databases with an outbox for measurements, fills them, and counts the
// remaining rows.
package table

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Server is a database server that deploy/servers starts, or SQLite.
type Server struct {
	Name    string // the name in figures
	Dialect dialect.Dialect
	// variable is the environment variable with the server's URL; empty: none is needed.
	variable string
}

// Servers has all servers. The keys are their short names.
var Servers = map[string]Server{
	"postgres15":      {Name: "PostgreSQL 15", Dialect: dialect.Postgres(), variable: "ROWRELAY_TEST_POSTGRES15"},
	"postgreslogical": {Name: "PostgreSQL 15", Dialect: dialect.Postgres(), variable: "ROWRELAY_BENCH_POSTGRESLOGICAL"},
	"postgres18":      {Name: "PostgreSQL 18", Dialect: dialect.Postgres(), variable: "ROWRELAY_TEST_POSTGRES18"},
	"mysql":           {Name: "MySQL 9.7", Dialect: dialect.MySQL(), variable: "ROWRELAY_TEST_MYSQL"},
	"mariadb1011":     {Name: "MariaDB 10.11", Dialect: dialect.MariaDB(), variable: "ROWRELAY_TEST_MARIADB1011"},
	"sqlite":          {Name: "SQLite", Dialect: dialect.SQLite()},
}

// Missing reports whether the server isn't up.
func (s Server) Missing() bool { return s.variable != "" && os.Getenv(s.variable) == "" }

// Database is a database that [Server.Create] has created.
type Database struct {
	Server
	DB  *sql.DB
	DSN string // the data source name for Pool
	URL string // the URL for clients that need one; empty for SQLite

	drop func()
}

// Create creates a database.
func (s Server) Create(ctx context.Context) (*Database, error) {
	name := "rowrelay_bench_" + strings.ToLower(rand.Text())[:10]
	switch s.Dialect.Name() {
	case "postgres":
		return s.postgres(ctx, name)
	case "sqlite":
		return s.sqlite(name)
	default:
		return s.mysql(ctx, name)
	}
}

// Close drops the database.
func (d *Database) Close() {
	_ = d.DB.Close()
	d.drop()
}

// connections is the limit of a pool's connections, as in the rowrelay command.
const connections = 10

// Pool opens another pool of the database.
func (d *Database) Pool() (*sql.DB, error) {
	pool, err := sql.Open(d.driver(), d.DSN)
	if err == nil {
		pool.SetMaxOpenConns(connections)
		pool.SetMaxIdleConns(connections) // with the default of two, a relay would open new connections repeatedly
	}
	return pool, err
}

func (s Server) driver() string {
	switch s.Dialect.Name() {
	case "postgres":
		return "pgx"
	case "sqlite":
		return "sqlite"
	default:
		return "mysql"
	}
}

func (s Server) postgres(ctx context.Context, name string) (*Database, error) {
	address, err := url.Parse(os.Getenv(s.variable))
	if err != nil {
		return nil, err
	}
	drop, err := s.createOn(ctx, address.String(), name, " WITH (FORCE)")
	if err != nil {
		return nil, err
	}
	address.Path = "/" + name
	query := address.Query()
	query.Set("jit", "off") // as the rowrelay command does
	address.RawQuery = query.Encode()
	return s.opened(&Database{DSN: address.String(), URL: address.String(), drop: drop})
}

func (s Server) mysql(ctx context.Context, name string) (*Database, error) {
	address, err := url.Parse(os.Getenv(s.variable))
	if err != nil {
		return nil, err
	}
	config := mysqlConfig(address)
	drop, err := s.createOn(ctx, config.FormatDSN(), name, "")
	if err != nil {
		return nil, err
	}
	config.DBName, address.Path = name, "/"+name
	return s.opened(&Database{DSN: config.FormatDSN(), URL: address.String(), drop: drop})
}

// mysqlConfig returns the configuration for a server, with the settings of the rowrelay command.
func mysqlConfig(address *url.URL) *mysql.Config {
	config := mysql.NewConfig()
	config.User = address.User.Username()
	config.Passwd, _ = address.User.Password()
	config.Net, config.Addr = "tcp", address.Host
	config.ParseTime, config.Loc = true, time.UTC
	config.ClientFoundRows, config.InterpolateParams = true, true
	config.Params = map[string]string{"time_zone": "'+00:00'"}
	return config
}

func (s Server) sqlite(name string) (*Database, error) {
	folder, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, err
	}
	dsn := "file:" + filepath.Join(folder, "bench.db") +
		"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(120000)&_pragma=foreign_keys(1)"
	return s.opened(&Database{DSN: dsn, drop: func() { _ = os.RemoveAll(folder) }})
}

// createOn creates a database on a server, and returns a function that drops it.
func (s Server) createOn(ctx context.Context, dsn, name, force string) (drop func(), err error) {
	admin, err := sql.Open(s.driver(), dsn)
	if err != nil {
		return nil, err
	}
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		_ = admin.Close()
		return nil, fmt.Errorf("create database %s: %w", name, err)
	}
	return func() {
		if _, err := admin.Exec("DROP DATABASE " + name + force); err != nil {
			fmt.Fprintf(os.Stderr, "couldn't drop the database %s, please drop it: %v\n", name, err)
		}
		_ = admin.Close()
	}, nil
}

func (s Server) opened(d *Database) (*Database, error) {
	d.Server = s
	db, err := d.Pool()
	d.DB = db
	return d, err
}
