package adopt_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Run number n is killed before its n-th statement that may change something. The next run forwards the rows that are written after
// the kill, after the rows of the backlog, and each row is forwarded once. If the killed run has recorded its mapping, the next run uses
// this mapping.
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
			found := fmt.Sprint(a.Way, a.Mapping)
			change(a)
			if wanted := fmt.Sprint(a.Way, a.Mapping); a.Recorded() && found != wanted {
				t.Errorf("the mapping of the killed run was %s, and the next run finds %s", wanted, found)
			}
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
	dead := kills(t, db, statement, "", func(_ *testing.T, _ testdb.Database, pool *sql.DB) error { return run(pool) })
	insert("written after the kill")
	check(t, run(db.DB))
	insert("new")
	wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", want...)
	a := open(t, db, "events")
	undo(t, a)
	execute(t, db, "DROP TABLE events")
	execute(t, db, "DELETE FROM outbox")
	return dead
}

// A run or an undo is killed before its n-th statement. The next undo ends the work, so nothing stays in the schema.
func TestUndoLeavesNothing(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('a', '1', '{}')")
		before := objects(t, db)
		for name, isKilled := range map[string]func(statement int) bool{
			"run": func(n int) bool { return kills(t, db, n, "", runUnmarked) },
			"undo": func(n int) bool {
				check(t, runUnmarked(t, db, db.DB))
				return kills(t, db, n, "", undoIfAdopted)
			},
			"undo of a run without a trigger": func(n int) bool {
				kills(t, db, -1, "CREATE TRIGGER", runUnmarked)
				return kills(t, db, n, "", undoIfAdopted)
			},
		} {
			for statement, again := 1, true; again; statement++ {
				again = isKilled(statement)
				check(t, undoIfAdopted(t, db, db.DB))
				if now := objects(t, db); !slices.Equal(now, before) {
					t.Fatalf("%s, killed before statement %d: the schema has %q, want %q", name, statement, now, before)
				}
			}
		}
	}, "postgres15/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc")
}

// openUnmarked opens the adoption of the table events with a mapping that doesn't mark rows.
func openUnmarked(t *testing.T, db testdb.Database, pool *sql.DB) (*adopt.Adoption, error) {
	d, err := dialect.ByName(db.Kind)
	check(t, err)
	a, err := adopt.Open(t.Context(), pool, d, "outbox", "events")
	if err == nil {
		a.Mapping.Waiting, a.Mapping.Published = "true", nil
	}
	return a, err
}

func runUnmarked(t *testing.T, db testdb.Database, pool *sql.DB) error {
	a, err := openUnmarked(t, db, pool)
	if err == nil {
		_, err = a.Run(t.Context(), nil)
	}
	return err
}

// undoIfAdopted does what the command adopt --undo does.
func undoIfAdopted(t *testing.T, db testdb.Database, pool *sql.DB) error {
	a, err := openUnmarked(t, db, pool)
	if err != nil || a.Adopted() == "" && !a.Recorded() {
		return err
	}
	_, err = a.Undo(t.Context(), nil)
	return err
}

// objects returns the names of the tables, functions and triggers of the schema, and the number of settings of the outbox.
func objects(t *testing.T, db testdb.Database) (names []string) {
	t.Helper()
	list := map[string]string{
		testdb.Postgres: `SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace
			UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
			UNION ALL SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)`,
		testdb.SQLite: "SELECT name FROM sqlite_master",
	}[db.Kind]
	if list == "" {
		list = `SELECT table_name FROM information_schema.tables WHERE table_schema = database()
			UNION ALL SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = database()`
	}
	names = lines(t, db, list)
	slices.Sort(names)
	return append(names, lines(t, db, "SELECT name FROM outbox_settings ORDER BY name")...)
}

// An undo that doesn't get its lock changes nothing: rows that a killed run has forwarded are not forwarded again.
func TestUndoWithoutItsLockKeepsTheForwardedRows(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('a', '1', '{}'), ('b', '1', '{}')")
		if !kills(t, db, -1, "CREATE TRIGGER", runUnmarked) {
			t.Fatal("the run created no trigger")
		}

		writer, err := db.OpenAnother(t).BeginTx(t.Context(), nil)
		check(t, err)
		_, err = writer.ExecContext(t.Context(), "INSERT INTO events (kind, aggregate_id, body) VALUES ('c', '1', '{}')")
		check(t, err)
		ctx, interrupt := context.WithCancel(t.Context())
		if _, err := open(t, db, "events").Undo(ctx, func(int64, int) { interrupt() }); !errors.Is(err, context.Canceled) {
			t.Fatalf("the undo ends with %v, want that it waits for the lock until it is interrupted", err)
		}
		check(t, writer.Commit())
		_, err = open(t, db, "events").Run(t.Context(), nil)
		check(t, err)
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "c")
	}, "mysql/gosql", "mariadb1011/gosql")
}

// kills calls work with a process that is killed, and reports whether the kill happened. See process for the arguments limit and before.
func kills(t *testing.T, db testdb.Database, limit int, before string, work func(*testing.T, testdb.Database, *sql.DB) error) bool {
	t.Helper()
	p := newProcess(t, db, limit)
	p.before = before
	if err := work(t, db, p.pool); (err != nil) != p.dead {
		t.Fatalf("the process ends with %v, killed: %v", err, p.dead)
	}
	check(t, p.pool.Close())
	return p.dead
}

// process is the database connections of a process that is killed before its statement number limit, or before the first statement
// that contains the text before. SELECTs don't count.
type process struct {
	driver.Connector
	pool         *sql.DB
	count, limit int
	before       string
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

// commits matches the statements before which MySQL and MariaDB commit.
var commits = regexp.MustCompile(`(?m)^(CREATE|DROP|TRUNCATE) (TABLE|TRIGGER)`)

// next counts a statement, and kills the process if the statement has the number limit. If the server commits before this statement,
// next commits before the kill, so the kill is between the two.
func (c *processConn) next(statement string) error {
	p := c.process
	if p.count++; p.count == p.limit || p.before != "" && strings.Contains(statement, p.before) {
		p.dead = true
		var err error
		if p.mysql && commits.MatchString(statement) {
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
