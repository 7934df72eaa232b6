package dialect_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The statements of SQL Server that golden_test.go doesn't have.
func TestGoldenSQLServer(t *testing.T) {
	t.Parallel()
	d, table := dialect.SQLServer(), mustTable(t, "app.Events")
	fitting := d.(dialect.Fitting)
	b := &text{}
	b.add("insert", d.Insert(table, []dialect.Row{fullRow})...)
	b.add("insert several", d.Insert(table, []dialect.Row{plainRow, fullRow})...)
	b.add("lock keys", d.LockKeys(table, []string{"b", "a", "b"})...)
	b.add("written", d.Written(table))
	b.add("server", fitting.Server())
	b.add("trial: hold", fitting.Skipping(table).Hold)
	b.add("trial: pass", fitting.Skipping(table).Pass)

	file := filepath.Join("testdata", "sqlserver_writing.sql")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || b.String() != string(want) {
		t.Errorf("the statements differ from %s (%v); if that is meant, run go test ./outbox/dialect -update and look at the change", file, err)
	}
}

func sqlServer(facts map[string]string) dialect.Server {
	all := map[string]string{"version": "16.0.4135.4", "edition": "3", "database": "shop", "level": "160", "snapshot": "0", "read committed snapshot": "0"}
	for name, value := range facts {
		all[name] = value
	}
	return dialect.Server{Facts: all, Skips: true}
}

func TestFitSQLServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts   map[string]string
		reading string // what reads are of
		wrong   string // or what the error says
	}{
		"allows snapshots":             {map[string]string{"snapshot": "1"}, "SNAPSHOT", ""},
		"reads snapshots":              {map[string]string{"read committed snapshot": "1"}, "READ COMMITTED", ""},
		"both":                         {map[string]string{"snapshot": "1", "read committed snapshot": "1"}, "READ COMMITTED", ""},
		"neither":                      {nil, "", "ALTER DATABASE [shop] SET ALLOW_SNAPSHOT_ISOLATION ON"},
		"not yet":                      {map[string]string{"snapshot": "2"}, "", "ALLOW_SNAPSHOT_ISOLATION"},
		"SQL Server 2016":              {map[string]string{"version": "13.0.7024.30", "level": "130", "snapshot": "1"}, "SNAPSHOT", ""},
		"SQL Server 2014":              {map[string]string{"version": "12.0.6024.0", "level": "120", "snapshot": "1"}, "", `"12.0.6024.0": SQL Server 2016`},
		"Azure's version":              {map[string]string{"version": "12.0.2000.8", "edition": "5", "read committed snapshot": "1"}, "READ COMMITTED", ""},
		"a managed instance's version": {map[string]string{"version": "12.0.2000.8", "edition": "8", "snapshot": "1"}, "SNAPSHOT", ""},
		"an old database":              {map[string]string{"level": "110", "snapshot": "1"}, "", "COMPATIBILITY_LEVEL = 130"},
		"no version":                   {map[string]string{"version": ""}, "", "SQL Server 2016"},
	} {
		got, err := dialect.SQLServer().(dialect.Fitting).Fit(sqlServer(c.facts))
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want an error with %q", name, err, c.wrong)
			}
			continue
		}
		if err != nil || got.Dialect.Name() != "sqlserver" || got.Unordered {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		level := "SET TRANSACTION ISOLATION LEVEL " + c.reading + ";\nSELECT"
		if query := got.Dialect.Written(dialect.Table{}); !strings.Contains(query.SQL, level) || dialect.ReadingLevel(got.Dialect) != c.reading {
			t.Errorf("%s: reads by %s, want %s", name, query.SQL, level)
		}
	}
	server := sqlServer(map[string]string{"snapshot": "1"})
	server.Skips = false
	if _, err := dialect.SQLServer().(dialect.Fitting).Fit(server); err == nil {
		t.Error("a server that doesn't skip is taken, want an error")
	}
}

func TestSQLServerErrorsAreRecognised(t *testing.T) {
	t.Parallel()
	d := dialect.SQLServer()
	for _, c := range []struct {
		what string
		is   func(error) bool
		err  error
		want bool
	}{
		{"deadlock", d.Busy, number(1205), true},
		{"deadlock of two keys' locks", d.Busy, number(51205), true},
		{"another failure of a key's lock", d.Busy, number(50000), false},
		{"lock timeout, wrapped", d.Busy, fmt.Errorf("settle: %w", number(1222)), true},
		{"update conflict", d.Busy, number(3960), true},
		{"duplicate key", d.Busy, number(2627), false},
		{"no object", d.Missing, number(208), true},
		{"no schema", d.Missing, number(2760), true},
		{"no right", d.Denied, number(229), true},
		{"no right to create", d.Denied, number(262), true},
		{"another error", d.Denied, errors.New("229"), false},
		{"no error", d.Missing, nil, false},
	} {
		if got := c.is(c.err); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}

type number int32

func (n number) Error() string         { return fmt.Sprintf("an error with the number %d", int32(n)) }
func (n number) SQLErrorNumber() int32 { return int32(n) }

func TestInsertsOfSQLServer(t *testing.T) {
	t.Parallel()
	d := dialect.SQLServer()
	if queries := d.Insert(dialect.Table{}, nil); queries != nil {
		t.Errorf("no rows make %v", queries)
	}
	empty := dialect.Row{MessageID: "i", Topic: "t", Payload: []byte{}}
	args := d.Insert(dialect.Table{}, []dialect.Row{plainRow, fullRow, empty})[0].Args
	if joined := string(args[0].([]byte)); joined != "pp\x00" {
		t.Errorf("the payloads are %q", joined)
	}
	const want = `[[0,1,null,"i","t",null,null,null,0],[1,1,2,"i","t\"\\","k","{}","2030-01-02T03:04:05.6789001",3],[2,3,0,"i","t",null,null,null,0]]`
	if list := strings.TrimSpace(args[1].(string)); list != want {
		t.Errorf("the rows are %s, want %s", list, want)
	}
	if args := d.Insert(dialect.Table{}, []dialect.Row{plainRow})[0].Args; slices.Contains(args, nil) {
		t.Errorf("a single row's arguments are %v, want no NULL among them", args)
	}
	large := dialect.Row{MessageID: "i", Topic: "t", Payload: make([]byte, 9<<20)}
	if queries := d.Insert(dialect.Table{}, []dialect.Row{large, large, large}); len(queries) != 3 {
		t.Errorf("three large rows are %d statements, want 3", len(queries))
	}
}

// What Transact-SQL reserves, and PostgreSQL doesn't, can name a table.
func TestReservedWordsOfSQLServerAreQuoted(t *testing.T) {
	t.Parallel()
	for _, word := range strings.Fields("backup browse file function index key open plan proc procedure rule schema top tran use view while") {
		if got := mustTable(t, word).Hot(); got != `"`+word+`"` {
			t.Errorf("the table %s is written %s", word, got)
		}
	}
	if got := mustTable(t, "public.outbox").Hot(); got != "public.outbox" {
		t.Errorf("PostgreSQL's own schema is written %s", got)
	}
}
