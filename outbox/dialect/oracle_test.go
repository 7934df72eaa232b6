package dialect_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var (
	literals     = regexp.MustCompile(`'[^']*'`)
	placeholders = regexp.MustCompile(`:(\d+)`)
)

// Drivers bind by place: each parameter stands once, in the order of its number.
func checkPlaces(t *testing.T, what string, queries ...dialect.Query) {
	t.Helper()
	for _, query := range queries {
		found := placeholders.FindAllStringSubmatch(literals.ReplaceAllString(query.SQL, "''"), -1)
		if len(found) != len(query.Args) {
			t.Errorf("%s: %d places for %d arguments in %s", what, len(found), len(query.Args), query.SQL)
		}
		for i, place := range found {
			if place[1] != strconv.Itoa(i+1) {
				t.Errorf("%s: %s stands at place %d of %s", what, place[0], i+1, query.SQL)
			}
		}
		for _, arg := range query.Args {
			if text, ok := arg.(string); ok && len(text) > 4000 {
				t.Errorf("%s: a text of %d bytes would be a LONG", what, len(text))
			}
		}
	}
}

func TestOracleInserts(t *testing.T) {
	t.Parallel()
	d, table := dialect.Oracle(), dialect.Table{}
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
		want []int // rows of each statement
	}{
		"nothing":         {nil, nil},
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
			t.Errorf("%s: statements of %v rows, want %v", name, got, c.want)
		}
		checkPlaces(t, name, queries...)
	}
	// What may be a LONG is the last of the parameters.
	one := d.Insert(table, repeat(large, 1))[0]
	if _, last := one.Args[len(one.Args)-1].([]byte); !last {
		t.Errorf("the last argument is no payload: %s", one.SQL)
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

// What a producer runs, and whoever opens a table.
func TestOracleWriting(t *testing.T) {
	t.Parallel()
	d := dialect.Oracle()
	table, err := dialect.ParseTable("app.Events")
	if err != nil {
		t.Fatal(err)
	}
	b := &text{}
	b.add("insert", d.Insert(table, []dialect.Row{fullRow})...)
	b.add("insert several", d.Insert(table, []dialect.Row{plainRow, fullRow, plainRow, fullRow})...)
	checkPlaces(t, "locks of keys", d.LockKeys(table, []string{"a", "b"})...)
	b.add("lock keys", d.LockKeys(table, []string{"b", "a"})...)
	b.add("written", d.Written(table))
	b.add("server", d.(dialect.Fitting).Server())
	file := filepath.Join("testdata", "oracle_writing.sql")
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

type oraError int

func (e oraError) Error() string { return "no text" }
func (e oraError) Code() int     { return int(e) }

func TestOracleErrors(t *testing.T) {
	t.Parallel()
	d := dialect.Oracle()
	repeating := d.(dialect.Repeating)
	for what, c := range map[string]struct {
		is   func(error) bool
		err  error
		want bool
	}{
		"deadlock":                   {d.Busy, errors.New("ORA-00060: deadlock detected while waiting for resource"), true},
		"deadlock, without its text": {d.Busy, errors.New("ORA-60 error occur at position: 0"), true},
		"deadlock, by its code":      {d.Busy, fmt.Errorf("settle: %w", oraError(60)), true},
		"in a block":                 {d.Busy, errors.New("ORA-00054: resource busy\nORA-06512: at line 3"), true},
		"not serializable":           {d.Busy, errors.New("ORA-08177: can't serialize access for this transaction"), true},
		"another number":             {d.Busy, errors.New("ORA-00600: internal error"), false},
		"no table":                   {d.Missing, errors.New("ORA-00942: table or view does not exist"), true},
		"no right":                   {d.Denied, errors.New("ORA-01031: insufficient privileges"), true},
		"no number":                  {d.Denied, errors.New("1031"), false},
		"no error":                   {d.Missing, nil, false},
		"there already":              {repeating.Made, errors.New("ORA-00955: name is already used by an existing object"), true},
		"not there":                  {repeating.Gone, errors.New("ORA-00942: table or view does not exist"), true},
		"not there, to be made":      {repeating.Made, errors.New("ORA-00942: table or view does not exist"), false},
	} {
		if got := c.is(c.err); got != c.want {
			t.Errorf("%s: %t, want %t", what, got, c.want)
		}
	}
}

func TestOracleFits(t *testing.T) {
	t.Parallel()
	fitting := dialect.Oracle().(dialect.Fitting)
	for version, fits := range map[string]bool{"12.2.0.1.0": true, "19.0.0.0.0": true, "23.0.0.0.0": true, "12.1.0.2.0": false, "11.2.0.4.0": false, "": false} {
		fit, err := fitting.Fit(dialect.Server{Facts: map[string]string{"version": version, "nls_comp": "LINGUISTIC", "nls_characterset": "AL32UTF8"}})
		if (err == nil) != fits {
			t.Errorf("version %q: %v, want that it fits: %t", version, err, fits)
		}
		if err == nil && (fit.Notes[1].OK != true || fit.Notes[2].OK != false) {
			t.Errorf("the notes are %+v, want that characters are well and comparing isn't", fit.Notes)
		}
	}
}
