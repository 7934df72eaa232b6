package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// RecordExecuted is the environment variable that names a directory for executed statements. For
// each target, the tests write a file in this directory. The file has each executed statement once,
// with numbers and lists normalised. Comparing the files of two runs shows how a change of the
// code changes the statements.
const RecordExecuted = "ROWRELAY_TEST_RECORD_SQL"

// executed collects the statements that were executed on one target.
type executed struct {
	mu         sync.Mutex
	statements map[string]bool
}

var (
	uuids   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	digits  = regexp.MustCompile(`\b[0-9]+\b`)
	dollars = regexp.MustCompile(`\$[0-9]+`)
	tokens  = regexp.MustCompile(`[A-Z2-7]{26}`)
	lists   = regexp.MustCompile(`\((N|\?|\$N|@pN)(, ?(N|\?|\$N|@pN))+\)`)
	repeats = regexp.MustCompile(`\((\S*)…\)(, ?\((\S*)…\))+`)
	again   = regexp.MustCompile(`(?s)\(([^()]*lane = N[^()]*)\)(\s*OR \([^()]*lane = N[^()]*\))+`)
)

// normal returns the query with placeholders for its numbers and ids, and with each list shortened to
// one element.
func normal(query string) string {
	query = uuids.ReplaceAllString(query, "UUID")
	query = tokens.ReplaceAllString(query, "TOKEN")
	query = dollars.ReplaceAllString(query, "$$N")
	query = digits.ReplaceAllString(query, "N")
	query = lists.ReplaceAllString(query, "($1…)")
	query = repeats.ReplaceAllString(query, "($1…)…")
	query = again.ReplaceAllString(query, "($1) OR …")
	return strings.TrimSpace(query)
}

func (e *executed) add(query string) {
	query = normal(query)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.statements[query] = true
}

// write adds the statements to the target's file, which may already have the statements of earlier pools.
func (e *executed) write(directory, target string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	file := filepath.Join(directory, strings.ReplaceAll(target, "/", "-")+".sql")
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	const between = "\n;\n"
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for statement := range strings.SplitSeq(string(before), between) {
		e.statements[strings.TrimSpace(statement)] = true
	}
	delete(e.statements, "")
	return os.WriteFile(file, []byte(strings.Join(slices.Sorted(maps.Keys(e.statements)), between)+between), 0o600)
}

var writing sync.Mutex // serialises the writes of all pools

// openRecorded opens a pool that records its statements. The returned function writes the recorded
// statements to the target's file.
func openRecorded(name, dsn, target, directory string) (pool *sql.DB, end func() error, err error) {
	plain, err := sql.Open(name, dsn)
	if err != nil {
		return nil, nil, err
	}
	d := plain.Driver()
	if err := plain.Close(); err != nil {
		return nil, nil, err
	}
	e := &executed{statements: map[string]bool{}}
	end = func() error {
		writing.Lock()
		defer writing.Unlock()
		return e.write(directory, target)
	}
	return sql.OpenDB(&recordingConnector{driver: d, dsn: dsn, into: e}), end, nil
}

type recordingConnector struct {
	driver driver.Driver
	dsn    string
	into   *executed
}

func (c *recordingConnector) Driver() driver.Driver { return c.driver }

func (c *recordingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	var conn driver.Conn
	var err error
	if with, ok := c.driver.(driver.DriverContext); ok {
		var connector driver.Connector
		if connector, err = with.OpenConnector(c.dsn); err == nil {
			conn, err = connector.Connect(ctx)
		}
	} else {
		conn, err = c.driver.Open(c.dsn)
	}
	if err != nil {
		return nil, err
	}
	all, ok := conn.(wholeConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("record the statements of driver %T: its connections lack a method", c.driver), conn.Close())
	}
	return &recordingConn{all, c.into}, nil
}

// wholeConn has the methods that a driver's connection needs so that its statements can be
// recorded.
type wholeConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.QueryerContext
	driver.ExecerContext
}

type recordingConn struct {
	wholeConn
	into *executed
}

func (c *recordingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.into.add(query)
	return c.wholeConn.QueryContext(ctx, query, args)
}

func (c *recordingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.into.add(query)
	return c.wholeConn.ExecContext(ctx, query, args)
}

func (c *recordingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.into.add(query)
	return c.wholeConn.PrepareContext(ctx, query)
}

// CheckNamedValue passes the argument to the driver, which may accept additional types.
func (c *recordingConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.wholeConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (c *recordingConn) ResetSession(ctx context.Context) error {
	if resetter, ok := c.wholeConn.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

func (c *recordingConn) IsValid() bool {
	validator, ok := c.wholeConn.(driver.Validator)
	return !ok || validator.IsValid()
}
