package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
)

// Recorder is a database that records the statements that it receives, and changes nothing. Checks and tests
// use it to find out which statements a backend runs.
type Recorder struct {
	// Answer returns the rows that a statement selects. If it is nil, no statement selects a row.
	Answer func(query string) [][]driver.Value

	// Affected returns the number of rows that a statement changes. If it is nil, no statement changes a row.
	Affected func(query string) int64

	mu      sync.Mutex
	queries []Query
}

// DB returns a pool of connections to the Recorder.
func (r *Recorder) DB() *sql.DB { return sql.OpenDB(recorderConnector{r}) }

// Taken returns the statements that were recorded since the last call of Taken.
func (r *Recorder) Taken() []Query {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.queries
	r.queries = nil
	return taken
}

func (r *Recorder) note(query string, args []driver.NamedValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var values []any
	for _, arg := range args {
		values = append(values, arg.Value)
	}
	r.queries = append(r.queries, Query{SQL: query, Args: values})
}

type recorderConnector struct{ *Recorder }

func (c recorderConnector) Connect(context.Context) (driver.Conn, error) { return conn(c), nil }
func (c recorderConnector) Driver() driver.Driver                        { return nil }

type conn struct{ *Recorder }

func (conn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("can't prepare statements") }
func (conn) Close() error                        { return nil }
func (conn) Begin() (driver.Tx, error)           { return tx{}, nil }

func (conn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return tx{}, nil }

// CheckNamedValue accepts any argument, because each driver has its own types.
func (conn) CheckNamedValue(*driver.NamedValue) error { return nil }

func (c conn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.note(query, args)
	if c.Affected == nil {
		return result(0), nil
	}
	return result(c.Affected(query)), nil
}

func (c conn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.note(query, args)
	if c.Answer == nil {
		return &answer{}, nil
	}
	return &answer{c.Answer(query)}, nil
}

// result is a driver's result that holds the number of affected rows. Its last insert id is always 1.
type result int64

func (result) LastInsertId() (int64, error)   { return 1, nil }
func (r result) RowsAffected() (int64, error) { return int64(r), nil }

type tx struct{}

func (tx) Commit() error   { return nil }
func (tx) Rollback() error { return nil }

type answer struct{ rows [][]driver.Value }

func (a *answer) Close() error { return nil }

func (a *answer) Columns() []string {
	if len(a.rows) == 0 {
		return nil
	}
	return make([]string, len(a.rows[0]))
}

func (a *answer) Next(values []driver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}
	copy(values, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}
