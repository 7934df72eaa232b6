package migrations_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func names(files []migrations.File) (all []string) {
	for _, file := range files {
		all = append(all, file.Name)
	}
	return all
}

// The name of a new file has the next number after the files in the tool's folder.
func TestFilesContinueTheToolsNumbers(t *testing.T) {
	t.Parallel()
	m, err := migrations.New(nil, dialect.Postgres(), migrations.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		tool   string
		folder []string
		want   string // a pattern for all names, separated by spaces
	}{
		{"goose", nil, `20\d{12}_rowrelay_outbox.sql`},
		{"goose", []string{"00001_orders.sql", "00009_more.sql", "embed.go"}, `00010_rowrelay_outbox.sql`},
		{"goose", []string{"00001_orders.sql", "20240131120000_more.sql"}, `202[5-9]\d{10}_rowrelay_outbox.sql`},
		{"goose", []string{"29990131120000_more.sql"}, `29990131120001_rowrelay_outbox.sql`},
		{"golang-migrate", []string{"000012_orders.up.sql", "000012_orders.down.sql"}, `000013_rowrelay_outbox.up.sql 000013_rowrelay_outbox.down.sql`},
		{"flyway", []string{"V1__orders.sql", "V2.1__more.sql", "R__view.sql"}, `V3__rowrelay_outbox.sql U3__rowrelay_outbox.sql`},
		{"liquibase", []string{"001-orders.sql"}, `002_rowrelay_outbox.sql`},
		{"rails", []string{"1_orders.rb"}, `20\d{12}_create_rowrelay_outbox.rb`},
		{"prisma", []string{"20240131120000_init/migration.sql"}, `20\d{12}_rowrelay_outbox/migration.sql 20\d{12}_rowrelay_outbox/down.sql`},
		{"alembic", []string{"a_orders.py"}, `[0-9a-f]{12}_rowrelay_outbox.py`},
	} {
		folder := fstest.MapFS{}
		for _, name := range test.folder {
			folder[name] = &fstest.MapFile{}
		}
		files, err := m.Files(test.tool, migrations.FileOptions{Folder: folder})
		if got := strings.Join(names(files), " "); err != nil || !regexp.MustCompile("^"+test.want+"$").MatchString(got) {
			t.Errorf("%s in %q: %s, %v; want %s", test.tool, test.folder, got, err, test.want)
		}
	}
}

func TestAlembicFilesFollowTheHead(t *testing.T) {
	t.Parallel()
	m, err := migrations.New(nil, dialect.Postgres(), migrations.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := &fstest.MapFile{Data: []byte("revision: str = 'aaa'\ndown_revision: Union[str, None] = None\n")}
	second := &fstest.MapFile{Data: []byte("revision = \"bbb\"\ndown_revision = \"aaa\"\n")}
	other := &fstest.MapFile{Data: []byte("revision = 'ccc'\ndown_revision = 'aaa'\n")}
	merge := &fstest.MapFile{Data: []byte("revision = 'ddd'\ndown_revision = ('bbb', 'ccc')\n")}
	for _, test := range []struct {
		folder fstest.MapFS
		want   string
	}{
		{nil, "down_revision = None  # set this to your newest revision"},
		{fstest.MapFS{}, "down_revision = None  # set this to your newest revision"},
		{fstest.MapFS{"1.py": first, "2.py": second}, "down_revision = \"bbb\"\n"},
		{fstest.MapFS{"1.py": first, "2.py": second, "3.py": other, "4.py": merge}, "down_revision = \"ddd\"\n"},
		{fstest.MapFS{"1.py": first, "2.py": second, "3.py": other}, "several heads (bbb, ccc): merge them with alembic merge heads first"},
	} {
		options := migrations.FileOptions{}
		if test.folder != nil {
			options.Folder = test.folder
		}
		files, err := m.Files("alembic", options)
		switch {
		case err != nil && !strings.Contains(err.Error(), test.want), err == nil && !strings.Contains(files[0].Text, test.want):
			t.Errorf("%d files: %v, %v; want %q", len(test.folder), files, err, test.want)
		}
	}
}

// All steps after FileOptions.After are one migration, which also turns on the options. If no step is left,
// the migration only turns on the options.
func TestFilesAfterAVersion(t *testing.T) {
	t.Parallel()
	const newest = migrations.Version + 1
	later := func(options migrations.Options) *migrations.Migrations {
		m, err := migrations.New(nil, dialect.Postgres(), options)
		if err != nil {
			t.Fatal(err)
		}
		m.AddStep("-- +goose Up\n\nCREATE TABLE outbox_later (id int);\n\n-- +goose Down\n\nDROP TABLE outbox_later;\n")
		return m
	}
	for _, test := range []struct {
		after   int64
		options migrations.Options
		name    string
		up      string // the last statement of the upgrade
		down    string // the first statement that rolls it back
	}{
		{0, migrations.Options{}, "1_rowrelay_outbox.sql", "CREATE TABLE outbox_later (id int);", "DROP TABLE outbox_later;"},
		{migrations.Version, migrations.Options{Table: "app.jobs"}, fmt.Sprintf("1_rowrelay_jobs_%d.sql", newest), "CREATE TABLE outbox_later (id int);", "DROP TABLE outbox_later;"},
		{1, migrations.Options{Claim: "rows"}, fmt.Sprintf("1_rowrelay_outbox_%d.sql", newest), "WHERE claimed_until IS NOT NULL;", "DROP INDEX IF EXISTS outbox_claim_id;"},
		{newest, migrations.Options{Notify: "on"}, "1_rowrelay_outbox_options.sql", "EXECUTE FUNCTION outbox_notify();", "DROP FUNCTION IF EXISTS outbox_notify() CASCADE;"},
		{newest, migrations.Options{}, "", "", ""},
	} {
		files, err := later(test.options).Files("goose", migrations.FileOptions{After: test.after, Folder: fstest.MapFS{"0_first.sql": &fstest.MapFile{}}})
		if err != nil || strings.Join(names(files), " ") != test.name {
			t.Errorf("after %d with %+v: %q, %v; want %q", test.after, test.options, names(files), err, test.name)
			continue
		}
		if len(files) == 0 {
			continue
		}
		up, down, _ := strings.Cut(files[0].Text, "-- +goose Down\n")
		if !strings.HasSuffix(strings.TrimSpace(up), test.up) || !strings.HasPrefix(strings.TrimSpace(down), test.down) {
			t.Errorf("after %d with %+v: %s, want %q and %q", test.after, test.options, files[0].Text, test.up, test.down)
		}
	}
}

// A tool's file has no line of SQL that the tool would take for an instruction, and no SQL that its language
// would interpret within the literal that contains the SQL.
func TestFilesContainNoInstructionsByAccident(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect.Dialect{dialect.Postgres(), dialect.MySQL(), dialect.MariaDB(), dialect.SQLite()} {
		options := migrations.Options{Claim: "rows"}
		if d.Name() == "postgres" {
			options.Table, options.Notify = "Shop.outbox", "on"
		}
		m, err := migrations.New(nil, d, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range migrations.Tools() {
			files, err := m.Files(tool, migrations.FileOptions{Inbox: "inbox"})
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				wrong := regexp.MustCompile(`(?mi)^(BEGIN|COMMIT)\b.*;$|\$\{`)
				switch tool {
				case "liquibase":
					wrong = regexp.MustCompile(`(?mi)^(BEGIN|COMMIT)\b.*;$|\$\{|^\s*-- *(property|precondition|validchecksum|ignorelines|rollback |comment)\b`)
					file.Text = regexp.MustCompile(`(?m)^--(rollback|comment|changeset|liquibase).*$`).ReplaceAllString(file.Text, "")
				case "alembic":
					wrong = regexp.MustCompile(`(?mi)^(BEGIN|COMMIT)\b.*;$|[^:\w\\]:\w`)
				case "rails":
					wrong = regexp.MustCompile(`(?mi)^(BEGIN|COMMIT)\b.*;$|#\{`)
				}
				if found := wrong.FindString(file.Text); found != "" {
					t.Errorf("%s on %s: %s contains %q", tool, d.Name(), file.Name, found)
				}
			}
		}
	}
}

func TestFilesAreRefused(t *testing.T) {
	t.Parallel()
	for want, test := range map[string]struct {
		d       dialect.Dialect
		tool    string
		options migrations.FileOptions
	}{
		"it must be alembic, flyway":   {dialect.Postgres(), "sequelize", migrations.FileOptions{}},
		"only plain SQL":               {dialect.Oracle(), "flyway", migrations.FileOptions{}},
		"with an upgrade of an outbox": {dialect.Postgres(), "goose", migrations.FileOptions{After: 1, Inbox: "inbox"}},
		"this release has the versio":  {dialect.Postgres(), "goose", migrations.FileOptions{After: 7}},
	} {
		m, err := migrations.New(nil, test.d, migrations.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if files, err := m.Files(test.tool, test.options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Files(%s) = %v, %v; want an error with %q", test.tool, names(files), err, want)
		}
	}
}

// The printed SQL creates the table's schema, so that a migration works on an empty database.
func TestPrintedSQLCreatesTheSchema(t *testing.T) {
	t.Parallel()
	for _, target := range targets() {
		if target.Kind != testdb.Postgres {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := target.Open(t)
			m := migrator(t, db, db.DB, migrations.Options{Table: "app.outbox"})
			var text strings.Builder
			if err := m.Print(&text); err != nil {
				t.Fatal(err)
			}
			exec(t, db.DB, text.String())
			if pending, err := m.Pending(t.Context()); err != nil || len(pending) != 0 {
				t.Errorf("Pending = %v, %v; want nothing", pending, err)
			}
		})
	}
}
