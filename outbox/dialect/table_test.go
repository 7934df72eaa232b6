package dialect_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func mustTable(t *testing.T, text string) dialect.Table {
	t.Helper()
	table, err := dialect.ParseTable(text)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestParseTable(t *testing.T) {
	t.Parallel()
	for text, pending := range map[string]string{
		"outbox":                       `outbox`,
		"app.outbox":                   `app.outbox`,
		"_o1":                          `_o1`,
		"Sales.outbox":                 `"Sales".outbox`,
		"app.OutBox":                   `app."OutBox"`,
		"order":                        `"order"`,
		"user.order":                   `"user"."order"`,
		strings.Repeat("a", 40):        strings.Repeat("a", 40),
		strings.Repeat("s", 63) + ".o": strings.Repeat("s", 63) + ".o",
	} {
		table := mustTable(t, text)
		if table.Pending != pending || table.String() != text {
			t.Errorf("ParseTable(%q): Pending %s, String %s; want %s", text, table.Pending, table, pending)
		}
	}
}

func TestParseTableRefuses(t *testing.T) {
	t.Parallel()
	for text, rule := range map[string]string{
		"":                                  "must not be empty",
		".outbox":                           "the schema's name must not be empty",
		"app.":                              "the table's name must not be empty",
		"a.b.c":                             "letters A to Z",
		"1outbox":                           "not begin with a digit",
		`out"box`:                           "letters A to Z",
		"outbox; DROP TABLE x":              "letters A to Z",
		"outbox\n":                          "letters A to Z",
		"öutbox":                            "letters A to Z",
		strings.Repeat("a", 41):             "at most 40 bytes",
		strings.Repeat("s", 64) + ".outbox": "at most 63 bytes",
	} {
		table, err := dialect.ParseTable(text)
		if err == nil || !strings.Contains(err.Error(), rule) || table != (dialect.Table{}) {
			t.Errorf("ParseTable(%q) = %v, %v; want an error with %q", text, table, err, rule)
		}
	}
}

func TestDerivedNames(t *testing.T) {
	t.Parallel()
	table := mustTable(t, "app.order")
	for got, want := range map[string]string{
		table.Pending:             `app."order"`,
		table.Held:                `app.order_held`,
		table.Done:                `app.order_done`,
		table.Lanes:               `app.order_lanes`,
		table.Relays:              `app.order_relays`,
		table.Settings:            `app.order_settings`,
		table.Messages:            `app.order_messages`,
		table.SchemaVersion:       `app.order_schema_version`,
		table.Index("due"):        `app.order_due`,
		table.IndexName("due"):    `order_due`,
		table.Channel:             `rowrelay_order`,
		table.Schema:              `app`,
		mustTable(t, "X").Channel: `rowrelay_X`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestByName(t *testing.T) {
	t.Parallel()
	for _, want := range []dialect.Dialect{dialect.Postgres(), dialect.MySQL(), dialect.MariaDB(), dialect.Oracle(), dialect.SQLServer(), dialect.SQLite()} {
		if got, err := dialect.ByName(want.Name()); got != want || err != nil {
			t.Errorf("ByName(%q) = %v, %v", want.Name(), got, err)
		}
	}
	if _, err := dialect.ByName("nosuch"); err == nil || !strings.Contains(err.Error(), "postgres, mysql, mariadb, oracle, sqlserver or sqlite") {
		t.Errorf("ByName(nosuch): %v, want an error with the known names", err)
	}
}

// FuzzParseTable checks that ParseTable accepts no name that could end an identifier
// or a literal, or that a database would truncate.
func FuzzParseTable(f *testing.F) {
	for _, text := range []string{"outbox", "app.outbox", `a"b`, "a;b", "a'b", "a b", "a.b.c", "ſelect", "a\x00", "Ünï"} {
		f.Add(text)
	}
	safe := regexp.MustCompile(`^("?[A-Za-z_][A-Za-z0-9_]{0,62}"?\.)?"?[A-Za-z_][A-Za-z0-9_]{0,62}"?$`)
	f.Fuzz(func(t *testing.T, text string) {
		table, err := dialect.ParseTable(text)
		if err != nil {
			return
		}
		longest := strings.Repeat("x", 22)
		for _, name := range []string{table.Pending, table.Held, table.Done, table.Lanes, table.Relays, table.Settings,
			table.Messages, table.SchemaVersion, table.Index(longest), table.IndexName(longest), table.Channel} {
			if !safe.MatchString(name) {
				t.Errorf("ParseTable(%q) makes the unsafe name %q", text, name)
			}
		}
		if table.String() != text {
			t.Errorf("ParseTable(%q).String() = %q", text, table)
		}
		if len(table.Name+"_schema_version_id_seq") > 63 {
			t.Errorf("ParseTable(%q): the name of the version table's sequence is too long", text)
		}
	})
}
