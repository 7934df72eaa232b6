package e2e

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// split simulates a proxy that splits reads from writes: SELECTs outside transactions go to the
// standby, all other statements to the primary, and settings to both.
type split struct{ primary, standby driver.Connector }

func (s split) Driver() driver.Driver { return s.primary.Driver() }

func (s split) Connect(ctx context.Context) (driver.Conn, error) {
	primary, err := s.primary.Connect(ctx)
	if err != nil {
		return nil, err
	}
	standby, err := s.standby.Connect(ctx)
	if err != nil {
		return nil, errors.Join(err, primary.Close())
	}
	return &splitConn{primary: primary, standby: standby}, nil
}

// splitConn is a session through the proxy that split simulates.
type splitConn struct {
	primary, standby driver.Conn
	inTx             bool
}

var plainSelect = regexp.MustCompile(`(?is)^\s*SELECT\b`)
var lockingSelect = regexp.MustCompile(`(?i)\bFOR\s+(UPDATE|SHARE|NO KEY UPDATE|KEY SHARE)\b|\bLOCK IN SHARE MODE\b|\bGET_LOCK\b|\bnextval\b`)

// of returns the connection to the server that gets the statement.
func (c *splitConn) of(query string) driver.Conn {
	words := strings.Fields(strings.ToUpper(query))
	switch {
	case len(words) == 0:
		return c.primary
	case words[0] == "BEGIN" || words[0] == "START":
		c.inTx = true
	case words[0] == "COMMIT" || words[0] == "ROLLBACK":
		c.inTx = false
	case !c.inTx && plainSelect.MatchString(query) && !lockingSelect.MatchString(query):
		return c.standby
	}
	return c.primary
}

func (c *splitConn) Prepare(query string) (driver.Stmt, error) { return c.of(query).Prepare(query) }
func (c *splitConn) Close() error                              { return errors.Join(c.primary.Close(), c.standby.Close()) }
func (c *splitConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *splitConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.of(query).(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *splitConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.primary.(driver.ConnBeginTx).BeginTx(ctx, options)
	c.inTx = err == nil
	return splitTx{tx, c}, err
}

func (c *splitConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.of(query).(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *splitConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if !c.inTx && strings.HasPrefix(strings.ToUpper(query), "SET ") {
		if _, err := c.standby.(driver.ExecerContext).ExecContext(ctx, query, args); err != nil {
			return nil, err
		}
	}
	return c.of(query).(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *splitConn) CheckNamedValue(value *driver.NamedValue) error {
	return c.primary.(driver.NamedValueChecker).CheckNamedValue(value)
}

func (c *splitConn) ResetSession(ctx context.Context) error {
	return errors.Join(c.primary.(driver.SessionResetter).ResetSession(ctx), c.standby.(driver.SessionResetter).ResetSession(ctx))
}

type splitTx struct {
	driver.Tx
	on *splitConn
}

func (tx splitTx) Commit() error   { tx.on.inTx = false; return tx.Tx.Commit() }
func (tx splitTx) Rollback() error { tx.on.inTx = false; return tx.Tx.Rollback() }

// connector returns a connector for a database of the server.
func (s *own) connector(database string) driver.Connector {
	s.t.Helper()
	db := s.open(s.address(), database, "")
	_, dsn := s.dsn(s.address(), database, "")
	connector, err := db.Driver().(driver.DriverContext).OpenConnector(dsn)
	check(s.t, err)
	return connector
}

// split opens a scene's database through a proxy that sends reads to the standby.
func (p *pair) split(s *scene) *sql.DB {
	p.t.Helper()
	db := sql.OpenDB(split{p.primary.connector(s.Name), p.standby.connector(s.Name)})
	p.t.Cleanup(func() { _ = db.Close() })
	return db
}

// named matches an error or log line that names the problem.
var named = regexp.MustCompile(`(?i)replica|standby|read-only|another server|not the one`)

// A proxy sends reads to a standby that is a second behind. The relay reports the reason why it
// refuses, or everything is delivered correctly.
func TestReadsFromAStandbyBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, name := range drawn("postgres15", "mysql", "mariadb1011") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, name, time.Second)
			scenes := map[storage.Claim]*scene{storage.ByLanes: p.scene("by_lanes"), storage.ByRows: p.scene("by_rows")}
			p.caughtUp()
			for claim, s := range scenes {
				s.readsElsewhere(p.split(s), claim)
			}
		})
	}
}

func (s *scene) readsElsewhere(db *sql.DB, claim storage.Claim) {
	s.t.Helper()
	d, err := dialect.ByName(s.Kind)
	check(s.t, err)
	store, err := sqlstore.Open(s.t.Context(), db, d, sqlstore.Options{})
	if err != nil {
		if !named.MatchString(err.Error()) {
			s.t.Errorf("%s: refused without naming the standby: %v", claim, err)
		}
		return
	}
	g := newGate(false)
	e := s.embed(store, claim, 15*time.Second, g)
	for n := range 100 {
		check(s.t, s.orders(s.t.Context(), 5, func() int { return n % 20 }, 5*n+1, true))
		<-time.After(30 * time.Millisecond)
	}
	s.idle(15 * time.Second)
	arrivals := g.received()
	said := e.log.String()
	if !isOpen(e.stopped) {
		said += fmt.Sprint(e.err)
	}
	refused := named.MatchString(said)
	v := tally(s.t, arrivals)
	behind := overtaken(arrivals)
	s.t.Logf("%s: 500 messages, %d of them delivered, %d deliveries, %d behind a later one of their key; refused or warned: %t", claim, v.distinct, len(arrivals), behind, refused)
	if v.distinct != 500 && !refused {
		s.t.Errorf("%s: %d messages of 500 arrived, and no log line or error names the reason", claim, v.distinct)
	}
	if len(v.duplicates) > 0 || claim == storage.ByLanes && behind > 0 {
		s.t.Errorf("%s: %d messages arrived again, %d deliveries arrived after a later one of their key", claim, len(v.duplicates), behind)
	}
}

// overtaken counts the arrivals that came after a later message of their key.
func overtaken(arrivals []arrival) (n int) {
	last := map[int]int{}
	for _, a := range arrivals {
		if a.number < last[a.customer] {
			n++
		}
		last[a.customer] = max(last[a.customer], a.number)
	}
	return n
}
