package migrations_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// catalog simulates the parts of an Oracle server that these tests need. It records which
// objects exist, and refuses a statement with a semicolon at its end. It commits each
// statement, as Oracle commits DDL.
type catalog struct {
	mu       sync.Mutex
	objects  map[string]bool // objects by name, and inserted rows by their statement
	versions map[int64]bool
	ran      []string
	failAt   int // the number of the statement at which the connection breaks, from 1
}

func newCatalog() *catalog {
	return &catalog{objects: map[string]bool{}, versions: map[int64]bool{}}
}

var (
	creates  = regexp.MustCompile(`^CREATE (OR REPLACE )?(?:TABLE|INDEX|VIEW|TRIGGER) (\S+)`)
	drops    = regexp.MustCompile(`^DROP (?:TABLE|VIEW|INDEX) (\S+)`)
	inserts  = regexp.MustCompile(`^INSERT INTO (\S+) `)
	tableOf  = regexp.MustCompile(`FROM (\S+)`)
	errBreak = errors.New("ORA-03113: end-of-file on communication channel")
)

func (c *catalog) exec(statement string, args []driver.NamedValue) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran = append(c.ran, statement)
	if len(c.ran) == c.failAt {
		return errBreak
	}
	if strings.HasSuffix(statement, ";") && !strings.HasSuffix(statement, "END;") {
		return errors.New("ORA-00911: invalid character")
	}
	if made := creates.FindStringSubmatch(statement); made != nil {
		if c.objects[made[2]] && made[1] == "" {
			return errors.New("ORA-00955: name is already used by an existing object")
		}
		c.objects[made[2]] = true
	}
	if gone := drops.FindStringSubmatch(statement); gone != nil {
		return c.drop(gone[1])
	}
	if into := inserts.FindStringSubmatch(statement); into != nil {
		return c.insert(into[1], statement, args)
	}
	if strings.HasPrefix(statement, "DELETE FROM outbox_schema_version") {
		delete(c.versions, args[0].Value.(int64))
	}
	return nil
}

// drop removes the object and everything that belongs to it.
func (c *catalog) drop(name string) error {
	if !c.objects[name] {
		return errors.New("ORA-00942: table or view does not exist")
	}
	for object := range c.objects {
		belongs := name == "outbox" && (object == "outbox_begin" || object == "outbox_lane_id" || object == "outbox_scheduled")
		if object == name || belongs || strings.HasPrefix(object, "INSERT INTO "+name+" ") || strings.HasPrefix(object, name+"_") && name != "outbox" {
			delete(c.objects, object)
		}
	}
	return nil
}

func (c *catalog) insert(table, statement string, args []driver.NamedValue) error {
	switch {
	case !c.objects[table]:
		return errors.New("ORA-00942: table or view does not exist")
	case len(args) == 1:
		version := args[0].Value.(int64)
		if c.versions[version] {
			return errors.New("ORA-00001: unique constraint violated")
		}
		c.versions[version] = true
	case c.objects[statement]:
		return errors.New("ORA-00001: unique constraint violated")
	default:
		c.objects[statement] = true
	}
	return nil
}

func (c *catalog) query(statement string) (*answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.Contains(statement, "product_component_version") {
		return &answer{rows: [][]driver.Value{{"version", "19.0.0.0.0"}, {"nls_comp", "BINARY"}, {"nls_characterset", "AL32UTF8"}}}, nil
	}
	if table := tableOf.FindStringSubmatch(statement); table != nil && !c.objects[table[1]] {
		return nil, errors.New("ORA-00942: table or view does not exist")
	}
	switch { // a table that exists has all of its fixed rows
	case strings.HasPrefix(statement, "SELECT COUNT(*)"):
		return &answer{rows: [][]driver.Value{{int64(1024)}}}, nil
	case strings.HasPrefix(statement, "SELECT value"):
		return &answer{rows: [][]driver.Value{{"1"}}}, nil
	}
	if strings.HasPrefix(statement, "SELECT max(") {
		return c.latest(), nil
	}
	found := &answer{}
	for version := range c.versions {
		switch {
		case strings.HasPrefix(statement, "SELECT version_id, tstamp"):
			found.rows = append(found.rows, []driver.Value{version, time.Now()})
		case strings.HasPrefix(statement, "SELECT is_applied"):
			found.rows = append(found.rows, []driver.Value{"1"})
		case strings.HasPrefix(statement, "SELECT version_id, is_applied"):
			found.rows = append(found.rows, []driver.Value{version, "1"})
		}
	}
	return found, nil
}

func (c *catalog) latest() *answer {
	if len(c.versions) == 0 {
		return &answer{rows: [][]driver.Value{{nil}}}
	}
	latest := int64(0)
	for version := range c.versions {
		latest = max(latest, version)
	}
	return &answer{rows: [][]driver.Value{{latest}}}
}

// Connect and Driver make the catalog a driver.Connector.
func (c *catalog) Connect(context.Context) (driver.Conn, error) { return &session{c}, nil }
func (c *catalog) Driver() driver.Driver                        { return nil }

type session struct{ *catalog }

func (s *session) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (s *session) Close() error                        { return nil }
func (s *session) Begin() (driver.Tx, error)           { return s, nil }
func (s *session) Commit() error                       { return nil }
func (s *session) Rollback() error                     { return nil }

func (s *session) ExecContext(_ context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), s.exec(statement, args)
}

func (s *session) QueryContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Rows, error) {
	found, err := s.query(statement)
	if err != nil {
		return nil, err
	}
	return found, nil
}

type answer struct{ rows [][]driver.Value }

func (a *answer) Close() error { return nil }

func (a *answer) Columns() []string {
	if len(a.rows) == 0 {
		return nil
	}
	return make([]string, len(a.rows[0]))
}

func (a *answer) Next(into []driver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}
	copy(into, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}

func oracle(t *testing.T, c *catalog) *migrations.Migrations {
	t.Helper()
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	m, err := migrations.New(db, dialect.Oracle(), migrations.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var oracleTables = []string{"outbox", "outbox_held", "outbox_done", "outbox_lanes", "outbox_relays", "outbox_settings", "outbox_locks", "outbox_messages", "outbox_begin", "outbox_lane_id", "outbox_scheduled", "outbox_held_message", "outbox_ids", "outbox_controls", "outbox_actions"}

func TestOracleUpAndDown(t *testing.T) {
	t.Parallel()
	c := newCatalog()
	m := oracle(t, c)
	for range 2 {
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != migrations.Version {
			t.Fatalf("Up = %v, %v; want all steps", applied, err)
		}
		for _, name := range oracleTables {
			if !c.objects[name] {
				t.Errorf("%s doesn't exist after Up", name)
			}
		}
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != 0 {
			t.Fatalf("a second Up = %v, %v; want nothing to do", applied, err)
		}
		for range migrations.Version {
			if taken, err := m.Down(t.Context()); err != nil || taken == nil {
				t.Fatalf("Down = %v, %v; want a step", taken, err)
			}
		}
		for name := range c.objects {
			if !strings.Contains(name, "schema_version") {
				t.Errorf("%s is left after Down", name)
			}
		}
	}
}

func TestOracleAppliesOnlyALaterStep(t *testing.T) {
	t.Parallel()
	c := newCatalog()
	if _, err := oracle(t, c).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := oracle(t, c)
	m.AddStep("-- +goose NO TRANSACTION\n\n-- +goose Up\n\nCREATE TABLE outbox_later (id int);\n\n-- +goose Down\n\nDROP TABLE outbox_later;\n")
	if applied, err := m.Up(t.Context()); err != nil || len(applied) != 1 || applied[0].Name != "00003_later.sql" || !c.objects["outbox_later"] {
		t.Fatalf("Up = %v, %v; want the later step alone", applied, err)
	}
	if taken, err := m.Down(t.Context()); err != nil || taken == nil || taken.Name != "00003_later.sql" || c.objects["outbox_later"] || !c.objects["outbox"] {
		t.Errorf("Down = %v, %v; want the later step alone", taken, err)
	}
}

// If the connection breaks at any statement, Up tries again and completes, although the
// effects of the earlier statements stay.
func TestOracleUpCompletesAfterAnInterruption(t *testing.T) {
	t.Parallel()
	whole := newCatalog()
	if _, err := oracle(t, whole).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= len(whole.ran); at++ {
		c := newCatalog()
		c.failAt = at
		if _, err := oracle(t, c).Up(t.Context()); err != nil {
			t.Fatalf("interrupted at %s: %v", whole.ran[at-1], err)
		}
		if len(c.objects) != len(whole.objects) {
			t.Errorf("interrupted at %s: there are %d objects, want %d", whole.ran[at-1], len(c.objects), len(whole.objects))
		}
	}
}

func TestOracleSeveralProcessesMigrateConcurrently(t *testing.T) {
	t.Parallel()
	c := newCatalog()
	var group sync.WaitGroup
	for range 4 {
		m := oracle(t, c)
		group.Go(func() {
			if _, err := m.Up(t.Context()); err != nil {
				t.Errorf("Up: %v", err)
			}
		})
	}
	group.Wait()
	if len(c.versions) != migrations.Version+1 {
		t.Errorf("the recorded versions are %v, want each step's and goose's version 0", c.versions)
	}
}

func TestPrintedOracleSQL(t *testing.T) {
	t.Parallel()
	m, err := migrations.New(nil, dialect.Oracle(), migrations.Options{Table: "app.Events", Claim: "rows"})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := m.Print(&text); err != nil {
		t.Fatal(err)
	}
	script := text.String()
	if blocks := strings.Count(script, "\nEND;\n/\n"); blocks != 5 || strings.Contains(script, "BEGIN;") || !strings.Contains(script, "\nCOMMIT;\n") {
		t.Errorf("the script has %d blocks that end with a line \"/\"; want 5, no BEGIN, and a COMMIT", blocks)
	}
	for _, part := range []string{`CREATE OR REPLACE TRIGGER app."Events_begin" BEFORE INSERT ON app."Events"`, `expect('app."Events"')`, `CREATE INDEX app."Events_lane_id" ON app."Events" (lane, id)`} {
		if !strings.Contains(script, part) {
			t.Errorf("the script lacks %s", part)
		}
	}
}
