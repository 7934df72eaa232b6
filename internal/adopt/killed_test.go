package adopt_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Run number n is killed before its n-th statement that may change something. The next run forwards the rows that are written after
// the kill, after the rows of the backlog, and each row is forwarded once.
func TestRunKilledBeforeEachStatement(t *testing.T) {
	t.Parallel()
	mappings := map[string]func(*adopt.Adoption){
		"marked":     func(*adopt.Adoption) {},
		"not marked": func(a *adopt.Adoption) { a.Mapping.Waiting, a.Mapping.Published = "true", nil },
		"deleted":    func(a *adopt.Adoption) { a.Mapping.Waiting, a.Mapping.Published = "true", []string{"delete"} },
		"view":       func(a *adopt.Adoption) { a.Way = adopt.View },
	}
	on(t, func(t *testing.T, db testdb.Database) {
		for name, change := range mappings {
			if name == "view" && db.Kind != testdb.Postgres {
				continue
			}
			for _, again := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, again %v", name, again), func(t *testing.T) {
					statement := 1
					for killedBefore(t, db, statement, again, change) {
						if t.Failed() {
							t.Fatalf("the run was killed before its statement %d", statement)
						}
						statement++
					}
					if statement < 8 {
						t.Errorf("the whole run had %d statements", statement-1)
					}
				})
			}
		}
	}, "postgres15/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc")
}

// killedBefore kills a run before the statement with this number, and reports whether the run reached it. If again is true, the run
// replaces the triggers of an earlier run.
func killedBefore(t *testing.T, db testdb.Database, statement int, again bool, change func(*adopt.Adoption)) (killed bool) {
	execute(t, db, events[db.Kind])
	insert := func(kinds ...string) {
		for _, kind := range kinds {
			execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('"+kind+"', '1', '{}')")
		}
	}
	run := func(pool *sql.DB) error {
		d, err := dialect.ByName(db.Kind)
		check(t, err)
		a, err := adopt.Open(t.Context(), pool, d, "outbox", "events")
		if err == nil {
			change(a)
			_, err = a.Run(t.Context(), nil)
		}
		return err
	}
	want := []string{"a", "b", "written after the kill", "new"}
	insert("a", "b")
	if again {
		check(t, run(db.DB))
		insert("c")
		want = []string{"a", "b", "c", "written after the kill", "new"}
	}
	process := newProcess(t, db, statement)
	if err := run(process.pool); (err != nil) != process.dead {
		t.Fatalf("the run ends with %v, killed: %v", err, process.dead)
	}
	check(t, process.pool.Close())
	insert("written after the kill")
	check(t, run(db.DB))
	insert("new")
	wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", want...)
	a := open(t, db, "events")
	check(t, a.Undo(t.Context(), nil))
	execute(t, db, "DROP TABLE events")
	execute(t, db, "DELETE FROM outbox")
	return process.dead
}

// process is the database connections of a process that is killed before its statement number limit. SELECTs don't count.
type process struct {
	driver.Connector
	pool         *sql.DB
	count, limit int
	dead         bool
	mysql        bool // the database is MySQL or MariaDB
}

func newProcess(t *testing.T, db testdb.Database, limit int) *process {
	p := &process{limit: limit, mysql: db.Kind == testdb.MySQL || db.Kind == testdb.MariaDB}
	var err error
	if context, ok := db.DB.Driver().(driver.DriverContext); ok {
		p.Connector, err = context.OpenConnector(db.DSN)
		check(t, err)
	} else {
		p.Connector = connector{db.DB.Driver(), db.DSN}
	}
	p.pool = sql.OpenDB(p)
	p.pool.SetMaxOpenConns(1) // so that the statements are counted by one goroutine at a time
	return p
}

func (p *process) Connect(ctx context.Context) (driver.Conn, error) {
	if p.dead {
		return nil, errKilled
	}
	conn, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &processConn{conn.(fullConn), p}, nil
}

// errKilled is the result of each statement of a killed process.
var errKilled = errors.New("the process was killed")

// connector opens the connections of a driver that has no connector.
type connector struct {
	driver driver.Driver
	dsn    string
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }

func (c connector) Driver() driver.Driver { return c.driver }

// fullConn has the methods that the drivers of the test have in common.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type processConn struct {
	fullConn
	process *process
}

// next counts a statement, and kills the process if the statement has the number limit. MySQL and MariaDB commit before they create a
// trigger. If the statement creates a trigger, next commits before the kill, so the kill is between the two.
func (c *processConn) next(statement string) error {
	p := c.process
	if p.count++; p.count == p.limit {
		p.dead = true
		var err error
		if p.mysql && strings.Contains(statement, "CREATE TRIGGER") {
			_, err = c.fullConn.ExecContext(context.Background(), "COMMIT", nil)
		}
		return errors.Join(errKilled, err, c.fullConn.Close())
	}
	if p.dead {
		return errKilled
	}
	return nil
}

func (c *processConn) Close() error {
	if c.process.dead {
		return nil // next has closed it
	}
	return c.fullConn.Close()
}

func (c *processConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.next(query); err != nil {
		return nil, err
	}
	return c.fullConn.ExecContext(ctx, query, args)
}

func (c *processConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.process.dead {
		return nil, errKilled
	}
	return c.fullConn.QueryContext(ctx, query, args)
}

func (c *processConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if err := c.next("BEGIN"); err != nil {
		return nil, err
	}
	tx, err := c.fullConn.BeginTx(ctx, options)
	return processTx{tx, c}, err
}

func (c *processConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

type processTx struct {
	driver.Tx
	conn *processConn
}

func (tx processTx) Commit() error {
	if err := tx.conn.next("COMMIT"); err != nil {
		return err
	}
	return tx.Tx.Commit()
}

func (tx processTx) Rollback() error {
	if tx.conn.process.dead {
		return errKilled // next has closed the connection
	}
	return tx.Tx.Rollback()
}
