package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The trial shows whether a server skips locked rows. If the server is slow, the store repeats the trial, and
// finally returns errTooSlow. An operator's store makes no trial, and assumes that the server skips locked rows.
// If the server waits for the lock, its error shows that it doesn't skip locked rows.
func TestSlowServerIsNotTakenForOneWithoutSkipLocked(t *testing.T) {
	t.Parallel()
	_, trial := dialect.MySQL().(dialect.Fitting).Server(backendtest.Table(t, "outbox"))
	waits := errors.New("Error 1205 (HY000): Lock wait timeout exceeded; try restarting transaction")
	for name, test := range map[string]struct {
		server   slowServer
		operator bool
		skips    bool
		err      error
	}{
		"a quick server":                   {server: slowServer{}, skips: true},
		"a second for each statement":      {server: slowServer{each: time.Second}, skips: false, err: errTooSlow},
		"half a second for each statement": {server: slowServer{each: time.Second / 2}, skips: true},
		"slow at first":                    {server: slowServer{each: time.Minute, until: 7 * time.Second}, skips: true},
		"always slow":                      {server: slowServer{each: time.Hour}, err: errTooSlow},
		"always slow, for an operator":     {server: slowServer{each: time.Hour}, operator: true, skips: true},
		"the server waits for the lock":    {server: slowServer{pass: waits}, skips: false},
		"SKIP LOCKED is a syntax error":    {server: slowServer{pass: errors.New("Error 1064 (42000): You have an error in your SQL syntax")}, skips: false},
		"another trial has locked the row": {server: slowServer{hold: waits}, skips: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := test.server
				server.trial, server.began = trial, time.Now()
				db := sql.OpenDB(&server)
				defer func() { _ = db.Close() }()
				s := &Store{db: db, dialect: dialect.MySQL(), options: Options{Operator: test.operator}}
				skips, err := s.skips(t.Context(), trial)
				if skips != test.skips || !errors.Is(err, test.err) {
					t.Errorf("the method skips returned %t, %v; want %t, %v", skips, err, test.skips, test.err)
				}
			})
		})
	}
}

// slowServer is the driver of a server on which every statement takes the duration in the field each. By default
// the server skips locked rows.
type slowServer struct {
	trial      *dialect.Trial
	each       time.Duration
	began      time.Time
	until      time.Duration // after this time the server is quick; 0: never
	hold, pass error         // the errors of the statement that locks a row and of the one that skips it
}

func (s *slowServer) Connect(context.Context) (driver.Conn, error) { return slowConn{s}, nil }
func (s *slowServer) Driver() driver.Driver                        { return nil }

func (s *slowServer) wait(ctx context.Context) error {
	if s.each == 0 || s.until > 0 && time.Since(s.began) > s.until {
		return nil
	}
	select {
	case <-time.After(s.each):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type slowConn struct{ *slowServer }

func (c slowConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("Prepare: unused") }
func (c slowConn) Close() error                        { return nil }
func (c slowConn) Begin() (driver.Tx, error)           { return slowTx{}, nil }

func (c slowConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return slowTx{}, nil }

func (c slowConn) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(0), c.wait(ctx)
}

func (c slowConn) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	if query == c.trial.Hold.SQL {
		return &oneRow{"0"}, c.hold
	}
	return &oneRow{c.trial.Want}, c.pass
}

type slowTx struct{}

func (slowTx) Commit() error   { return nil }
func (slowTx) Rollback() error { return nil }

// oneRow is a result with one row, which has one text.
type oneRow []string

func (r *oneRow) Columns() []string { return []string{"lane"} }
func (r *oneRow) Close() error      { return nil }
func (r *oneRow) Next(values []driver.Value) error {
	if len(*r) == 0 {
		return io.EOF
	}
	values[0] = (*r)[0]
	*r = (*r)[1:]
	return nil
}
