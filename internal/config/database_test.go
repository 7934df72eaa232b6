package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestParseDatabase(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Database{
		"postgres://u:p@h:5432/d?sslmode=disable": {kind: "postgres", url: "postgres://u:p@h:5432/d?sslmode=disable"},
		"postgresql:///d":                         {kind: "postgres", url: "postgresql:///d"},
		"postgres://":                             {kind: "postgres", url: "postgres://"},
		"mysql://u:p@h:3306/d?tls=true":           {kind: "mysql", url: "mysql://u:p@h:3306/d?tls=true"},
		"mariadb:///d?socket=/run/mysqld.sock":    {kind: "mariadb", url: "mariadb:///d?socket=/run/mysqld.sock"},
		"sqlserver://u:p@h/i?database=d":          {kind: "sqlserver", url: "sqlserver://u:p@h/i?database=d"},
		"sqlserver://u:p@h?Database=d":            {kind: "sqlserver", url: "sqlserver://u:p@h?Database=d"},
		"oracle://u:p@h:1521/s":                   {kind: "oracle", url: "oracle://u:p@h:1521/s"},
		"sqlite:a.db":                             {kind: "sqlite", url: "a.db"},
		"sqlite:dir with space/ä%20.db":           {kind: "sqlite", url: "dir with space/ä%20.db"},
		"sqlite:/abs/a.db":                        {kind: "sqlite", url: "/abs/a.db"},
		"sqlite:///abs/a.db":                      {kind: "sqlite", url: "/abs/a.db"},
		"sqlite:a#1.db":                           {kind: "sqlite", url: "a#1.db"},
		"sqlite:../a.db":                          {kind: "sqlite", url: "../a.db"},
	} {
		if got, err := ParseDatabase(text); got != want || err != nil {
			t.Errorf("%q: got %#v, %v", text, got, err)
		}
	}
}

func TestDatabaseErrorsHideTheURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                         "isn't a database's URL",
		"hunter2":                                  "isn't a database's URL",
		"host=h password=hunter2":                  "isn't a database's URL",
		"mongodb://u:hunter2@h/d":                  "isn't a database's URL",
		"mysql:hunter2":                            "write mysql://user:password@host:3306/name",
		"mysql://u:hunter2@h":                      "names no database: write mysql://user:password@host:3306/name",
		"mariadb://u:hunter2@h/":                   "names no database: write mariadb://",
		"mariadb://u:hun#ter2@h/d":                 "percent-encoded",
		"sqlserver://u:hunter2@h/d":                "names no database: write sqlserver://user:password@host:1433?database=name",
		"oracle://u:hunter2@h":                     "names no database: write oracle://",
		"POSTGRES://u:hunter2@h/d":                 "isn't a database's URL: write postgres://user:password@host:5432/name, in lower case",
		"postgresql+psycopg://u:hunter2@h/d":       "write postgres://user:password@host:5432/name, in lower case and without the name of a driver",
		"jdbc:postgresql://h/d?password=hunter2":   "write postgres://user:password@host:5432/name",
		"mysql+pymysql://u:hunter2@h/d":            "write mysql://user:password@host:3306/name",
		"mysql2://u:hunter2@h/d":                   "write mysql://user:password@host:3306/name",
		"mariadb+mariadbconnector://u:hunter2@h/d": "write mariadb://user:password@host:3306/name",
		"jdbc:sqlserver://h;password=hunter2":      "write sqlserver://",
		"sqlite3:hunter2.db":                       "write sqlite:",
		"u:hunter2@tcp(h:3306)/d":                  "isn't a database's URL: write one that begins with",
		"postgres:hunter2":                         "isn't a valid URL: write postgres://",
		"postgres://u:hun#ter2@h/d":                "percent-encoded",
		"postgres://u:1#hunter2@h/d":               "percent-encoded",
		"postgres://u:hunter2%zz@h/d":              "percent-encoded",
		"postgres://u:hunter2/x@h:99/d":            "percent-encoded",
		"postgres://u:p@h/d#hunter2":               "percent-encoded",
		"sqlite:":                                  "names no file",
		"sqlite://":                                "names a host",
		"sqlite:///":                               "names no file",
		"sqlite:dir/":                              "names no file",
		"sqlite://relative.db":                     "names a host",
		"sqlite::memory:":                          "is in memory",
		"sqlite:a.db?key=hunter2":                  "has parameters",
		"sqlite:a\x00hunter2":                      "has parameters",
	} {
		_, err := ParseDatabase(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		} else if strings.Contains(err.Error(), "hun") {
			t.Errorf("%q: the error repeats it: %v", text, err)
		}
	}
}

func TestADatabaseNeverShowsItsPassword(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://u:hunter2@h/d":                                 "postgres://u:xxxxx@h/d",
		"postgres://h/d?user=u&password=hunter2":                   "postgres://h/d?password=xxxxx&user=u",
		"postgres://u@h/d?sslpassword=hunter2&sslmode=verify-full": "postgres://u@h/d?sslmode=verify-full&sslpassword=xxxxx",
		"mysql://u:hunter2@h/d?tls=true":                           "mysql://u:xxxxx@h/d?tls=true",
		"mariadb://u:hunter2@h/d":                                  "mariadb://u:xxxxx@h/d",
		"sqlserver://h?database=h/d&user+id=u&Password=hunter2":    "sqlserver://h?Password=xxxxx&database=h%2Fd&user+id=u",
		"oracle://u:hunter2@h/d?wallet+password=hunter2":           "oracle://u:xxxxx@h/d?wallet+password=xxxxx",
		"sqlite:a.db": "sqlite:a.db",
	} {
		d, err := ParseDatabase(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if d.String() != want {
			t.Errorf("got %q, want %q", d, want)
		}
		shown := everyForm(t, d)
		if strings.Contains(shown, "hunter2") || !strings.Contains(shown, "h/d") && !strings.Contains(shown, "h%2Fd") && d.Kind() != "sqlite" {
			t.Errorf("%q shows as %s", text, shown)
		}
	}
	if text := (Database{}).String(); text != "" {
		t.Errorf("no database shows as %q", text)
	}
}

func everyForm(t *testing.T, d Database) string {
	t.Helper()
	encoded, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "database", d, "source", Source{Database: d})
	return fmt.Sprintf("%v %+v %#v %s %q %v %+v %#v", d, d, d, d, d, Source{Database: d}, &Source{Database: d}, Source{Database: d}) +
		string(encoded) + logged.String()
}
