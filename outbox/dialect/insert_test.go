package dialect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var (
	plainRow = dialect.Row{MessageID: "i", Topic: "t"}
	fullRow  = dialect.Row{MessageID: "i", Topic: `t"\`, Key: "k", Payload: []byte("pp"), Headers: "{}",
		AvailableAt: time.Date(2030, 1, 2, 3, 4, 5, 678_900_001, time.UTC), ExpiresAt: time.Date(2030, 1, 3, 0, 0, 0, 0, time.UTC), Priority: 3}
)

func TestInsertNamesOnlyUsedColumns(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		dialect dialect.Dialect
		rows    []dialect.Row
	}{
		"INSERT INTO app.outbox (message_id, topic) VALUES (?,?)":       {dialect.SQLite(), []dialect.Row{plainRow}},
		"INSERT INTO app.outbox (message_id, topic) VALUES (?,?),(?,?)": {dialect.SQLite(), []dialect.Row{plainRow, plainRow}},
		"INSERT INTO app.outbox (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES (?,?,?,?,?,?,?,?),(?,?,?,?,?,?,?,?)": {
			dialect.SQLite(), []dialect.Row{plainRow, fullRow}},
		"INSERT INTO app.outbox (message_id, topic) VALUES ($1::uuid,$2),($3::uuid,$4)": {dialect.Postgres(), []dialect.Row{plainRow, plainRow}},
		"INSERT INTO app.outbox (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES ($1::uuid,$2,$3,$4,$5::json,$6::timestamptz,$7::timestamptz,$8::smallint)": {
			dialect.Postgres(), []dialect.Row{fullRow}},
		"INSERT INTO app.outbox (payload, message_id, topic) SELECT substring($1::bytea FROM f FOR l), message_id, topic" +
			" FROM unnest($2::int[], $3::int[], $4::uuid[], $5::text[]) WITH ORDINALITY AS r (f, l, message_id, topic, n) ORDER BY n": {
			dialect.Postgres(), slices.Repeat([]dialect.Row{plainRow}, 21)},
	} {
		queries := c.dialect.Insert(mustTable(t, "app.outbox"), c.rows)
		if len(queries) != 1 || queries[0].SQL != want {
			t.Errorf("got  %+v\nwant %s", queries, want)
		}
		if args := queries[0].Args; len(args) != strings.Count(want, "?")+strings.Count(want, "$") {
			t.Errorf("%s: %d arguments", want, len(args))
		}
	}
}

func TestInsertArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect dialect.Dialect
		at      string
		expires string
	}{{dialect.SQLite(), "2030-01-02 03:04:05.679", "2030-01-03 00:00:00.000"}, {dialect.Postgres(), "2030-01-02 03:04:05.678901+00", "2030-01-03 00:00:00.000000+00"}} {
		args := c.dialect.Insert(mustTable(t, "outbox"), []dialect.Row{fullRow, plainRow})[0].Args
		payload := string(args[3].([]byte))
		args[3] = nil
		want := []any{"i", `t"\`, "k", nil, "{}", c.at, c.expires, int64(3), "i", "t", nil, nil, nil, nil, nil, int64(0)}
		for i := range want {
			if args[i] != want[i] {
				t.Errorf("%s: argument %d is %v, want %v", c.dialect.Name(), i, args[i], want[i])
			}
		}
		if payload != "pp" {
			t.Errorf("%s: the payload is %s", c.dialect.Name(), payload)
		}
	}
}

func TestPostgresInsertsManyRowsAsArrays(t *testing.T) {
	t.Parallel()
	rows := make([]dialect.Row, 21)
	for i := range rows {
		rows[i] = []dialect.Row{plainRow, fullRow}[i%2]
	}
	args := dialect.Postgres().Insert(mustTable(t, "outbox"), rows)[0].Args
	if joined := string(args[0].([]byte)); joined != strings.Repeat("pp", 10) {
		t.Errorf("the payloads are %s", joined)
	}
	for i, want := range []string{"{1,1,3,3,5,", "{NULL,2,NULL,2,", `{"i","i",`, `{"t","t\"\\","t",`, `{NULL,"k",NULL,"k",`, `{NULL,"{}",NULL,`,
		`{NULL,"2030-01-02 03:04:05.678901+00",NULL,`, `{NULL,"2030-01-03 00:00:00.000000+00",NULL,`, "{0,3,0,"} {
		if got := args[i+1].(string); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "}") {
			t.Errorf("argument %d is %s, want %s…", i+1, got, want)
		}
	}
}

func TestInsertIsSplitAtTheDatabasesLimits(t *testing.T) {
	t.Parallel()
	large := dialect.Row{MessageID: "i", Topic: "t", Payload: make([]byte, 9<<20)}
	for name, c := range map[string]struct {
		dialect  dialect.Dialect
		row      dialect.Row
		rows     int
		queries  int
		maxCount int
	}{
		"no rows":                {dialect.SQLite(), plainRow, 0, 0, 0},
		"SQLite's parameters":    {dialect.SQLite(), plainRow, 16384, 2, 32766},
		"SQLite, all columns":    {dialect.SQLite(), fullRow, 4096, 2, 32766},
		"exactly the limit":      {dialect.SQLite(), fullRow, 4095, 1, 32766},
		"arrays have no limit":   {dialect.Postgres(), fullRow, 50_000, 1, 10},
		"PostgreSQL's bytes":     {dialect.Postgres(), large, 3, 3, 3},
		"many large payloads":    {dialect.Postgres(), large, 21, 21, 9},
		"payload over the limit": {dialect.Postgres(), dialect.Row{MessageID: "i", Topic: "t", Payload: make([]byte, 17<<20)}, 2, 2, 3},
	} {
		rows := make([]dialect.Row, c.rows)
		for i := range rows {
			rows[i] = c.row
		}
		queries := c.dialect.Insert(mustTable(t, "outbox"), rows)
		if len(queries) != c.queries {
			t.Errorf("%s: %d queries, want %d", name, len(queries), c.queries)
		}
		for _, query := range queries {
			if len(query.Args) > c.maxCount {
				t.Errorf("%s: %d arguments", name, len(query.Args))
			}
		}
	}
}

func TestOracleInsertBlocks(t *testing.T) {
	t.Parallel()
	d, table := dialect.Oracle(), mustTable(t, "outbox")
	row := dialect.Row{MessageID: "i", Topic: "t", Payload: []byte("p")}
	large := dialect.Row{MessageID: "i", Topic: "t", Headers: "{}", Payload: make([]byte, 5000), Priority: 3}
	repeat := func(row dialect.Row, n int) (rows []dialect.Row) {
		for range n {
			rows = append(rows, row)
		}
		return rows
	}
	for name, c := range map[string]struct {
		rows []dialect.Row
		want []int // the number of rows in each statement
	}{
		"no rows":         {nil, nil},
		"one":             {repeat(row, 1), []int{1}},
		"few":             {repeat(row, 3), []int{1, 1, 1}},
		"many":            {repeat(row, 101), []int{64, 16, 16, 4, 1}},
		"a large one":     {append(append(repeat(row, 4), large), repeat(row, 4)...), []int{4, 1, 4}},
		"large ones only": {repeat(large, 2), []int{1, 1}},
	} {
		queries := d.Insert(table, c.rows)
		var got []int
		for _, query := range queries {
			got = append(got, strings.Count(query.SQL, "INSERT INTO outbox "))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: the statements insert %v rows, want %v", name, got, c.want)
		}
		checkPlaces(t, name, queries...)
	}
	// Oracle requires that a parameter that may be a LONG is the last one.
	one := d.Insert(table, repeat(large, 1))[0]
	if _, last := one.Args[len(one.Args)-1].([]byte); !last {
		t.Errorf("the last argument isn't the payload: %s", one.SQL)
	}
	for payload, want := range map[string]string{"NULL": "(message_id, topic) VALUES (:1, :2)", "empty": "(message_id, topic, payload) VALUES (:1, :2, EMPTY_BLOB())"} {
		row := dialect.Row{MessageID: "i", Topic: "t"}
		if payload == "empty" {
			row.Payload = []byte{}
		}
		if got := d.Insert(table, []dialect.Row{row})[0].SQL; !strings.HasSuffix(got, want) {
			t.Errorf("a payload that is %s: %s", payload, got)
		}
	}
}

func TestSQLServerInserts(t *testing.T) {
	t.Parallel()
	d := dialect.SQLServer()
	if queries := d.Insert(mustTable(t, "outbox"), nil); queries != nil {
		t.Errorf("no rows make %v", queries)
	}
	empty := dialect.Row{MessageID: "i", Topic: "t", Payload: []byte{}}
	args := d.Insert(mustTable(t, "outbox"), []dialect.Row{plainRow, fullRow, empty})[0].Args
	if joined := string(args[0].([]byte)); joined != "pp\x00" {
		t.Errorf("the payloads are %q", joined)
	}
	const want = `[[0,1,null,"i","t",null,null,null,0,null],[1,1,2,"i","t\"\\","k","{}","2030-01-02T03:04:05.6789001",3,"2030-01-03T00:00:00.0000000"],[2,3,0,"i","t",null,null,null,0,null]]`
	if list := strings.TrimSpace(args[1].(string)); list != want {
		t.Errorf("the rows are %s, want %s", list, want)
	}
	if args := d.Insert(mustTable(t, "outbox"), []dialect.Row{plainRow})[0].Args; slices.Contains(args, nil) {
		t.Errorf("a single row's arguments are %v, want no NULL among them", args)
	}
	large := dialect.Row{MessageID: "i", Topic: "t", Payload: make([]byte, 9<<20)}
	if queries := d.Insert(mustTable(t, "outbox"), []dialect.Row{large, large, large}); len(queries) != 3 {
		t.Errorf("three large rows are %d statements, want 3", len(queries))
	}
}

// A table's name is quoted if it is a reserved word in Transact-SQL, even if it isn't one in PostgreSQL.
func TestReservedWordsOfSQLServerAreQuoted(t *testing.T) {
	t.Parallel()
	for _, word := range strings.Fields("backup browse file function index key open plan proc procedure rule schema top tran use view while") {
		if got := mustTable(t, word).Pending; got != `"`+word+`"` {
			t.Errorf("the table %s is written %s", word, got)
		}
	}
	if got := mustTable(t, "public.outbox").Pending; got != "public.outbox" {
		t.Errorf("the table in PostgreSQL's schema public is written %s", got)
	}
}
