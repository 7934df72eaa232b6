package dialect_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var (
	plainRow = dialect.Row{MessageID: "i", Topic: "t"}
	fullRow  = dialect.Row{MessageID: "i", Topic: `t"\`, Key: "k", Payload: []byte("pp"), Headers: "{}",
		AvailableAt: time.Date(2030, 1, 2, 3, 4, 5, 678_900_001, time.UTC), Priority: 3}
)

func TestInsertNamesOnlyWhatIsFilled(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		dialect dialect.Dialect
		rows    []dialect.Row
	}{
		"INSERT INTO app.outbox (message_id, topic) VALUES (?,?)":       {dialect.SQLite(), []dialect.Row{plainRow}},
		"INSERT INTO app.outbox (message_id, topic) VALUES (?,?),(?,?)": {dialect.SQLite(), []dialect.Row{plainRow, plainRow}},
		"INSERT INTO app.outbox (message_id, topic, message_key, payload, headers, available_at, priority) VALUES (?,?,?,?,?,?,?),(?,?,?,?,?,?,?)": {
			dialect.SQLite(), []dialect.Row{plainRow, fullRow}},
		"INSERT INTO app.outbox (message_id, topic) VALUES ($1::uuid,$2),($3::uuid,$4)": {dialect.Postgres(), []dialect.Row{plainRow, plainRow}},
		"INSERT INTO app.outbox (message_id, topic, message_key, payload, headers, available_at, priority) VALUES ($1::uuid,$2,$3,$4,$5::json,$6::timestamptz,$7::smallint)": {
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

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect dialect.Dialect
		at      string
	}{{dialect.SQLite(), "2030-01-02 03:04:05.679"}, {dialect.Postgres(), "2030-01-02 03:04:05.678901+00"}} {
		args := c.dialect.Insert(dialect.Table{}, []dialect.Row{fullRow, plainRow})[0].Args
		payload := string(args[3].([]byte))
		args[3] = nil
		want := []any{"i", `t"\`, "k", nil, "{}", c.at, int64(3), "i", "t", nil, nil, nil, nil, int64(0)}
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

func TestManyRowsAreArrays(t *testing.T) {
	t.Parallel()
	rows := make([]dialect.Row, 21)
	for i := range rows {
		rows[i] = []dialect.Row{plainRow, fullRow}[i%2]
	}
	args := dialect.Postgres().Insert(dialect.Table{}, rows)[0].Args
	if joined := string(args[0].([]byte)); joined != strings.Repeat("pp", 10) {
		t.Errorf("the payloads are %s", joined)
	}
	for i, want := range []string{"{1,1,3,3,5,", "{NULL,2,NULL,2,", `{"i","i",`, `{"t","t\"\\","t",`, `{NULL,"k",NULL,"k",`, `{NULL,"{}",NULL,`,
		`{NULL,"2030-01-02 03:04:05.678901+00",NULL,`, "{0,3,0,"} {
		if got := args[i+1].(string); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "}") {
			t.Errorf("argument %d is %s, want %s…", i+1, got, want)
		}
	}
}

func TestInsertIsCutByTheDatabasesLimits(t *testing.T) {
	t.Parallel()
	large := dialect.Row{MessageID: "i", Topic: "t", Payload: make([]byte, 9<<20)}
	for name, c := range map[string]struct {
		dialect  dialect.Dialect
		row      dialect.Row
		rows     int
		queries  int
		maxCount int
	}{
		"nothing":                {dialect.SQLite(), plainRow, 0, 0, 0},
		"parameters of SQLite":   {dialect.SQLite(), plainRow, 16384, 2, 32766},
		"all columns of SQLite":  {dialect.SQLite(), fullRow, 4681, 2, 32766},
		"just one of SQLite":     {dialect.SQLite(), fullRow, 4680, 1, 32766},
		"arrays have no limit":   {dialect.Postgres(), fullRow, 50_000, 1, 9},
		"bytes of PostgreSQL":    {dialect.Postgres(), large, 3, 3, 3},
		"many bytes":             {dialect.Postgres(), large, 21, 21, 9},
		"a payload over a limit": {dialect.Postgres(), dialect.Row{MessageID: "i", Topic: "t", Payload: make([]byte, 17<<20)}, 2, 2, 3},
	} {
		rows := make([]dialect.Row, c.rows)
		for i := range rows {
			rows[i] = c.row
		}
		queries := c.dialect.Insert(dialect.Table{}, rows)
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
