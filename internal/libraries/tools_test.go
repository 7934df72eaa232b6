package libraries

import (
	"database/sql"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/pressly/goose/v3"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

var allTools = flag.Bool("tools", false, "also run the migration tools that need packages of Java, Node, Python and Ruby")

// migrated is an empty database and a tool's folder with the migration that rowrelay migrate print wrote for it.
type migrated struct {
	testdb.Database
	*toolbox
	folder string
	files  []string
}

// toolbox makes what the tools need, once: the command, the files of Java's libraries, a virtual environment of Python,
// and a folder with Prisma.
type toolbox struct{ command, classpath, python, prisma func() (string, error) }

func newToolbox(t *testing.T) *toolbox {
	t.Helper()
	folder := t.TempDir()
	shell := func(result string, commands ...string) func() (string, error) {
		return sync.OnceValues(func() (string, error) {
			for _, line := range commands {
				command := exec.Command("sh", "-c", line)
				command.Env = append(os.Environ(), "OUT="+result)
				if out, err := command.CombinedOutput(); err != nil {
					return "", fmt.Errorf("%s: %w: %s", line, err, out)
				}
			}
			return result, nil
		})
	}
	return &toolbox{
		command:   shell(filepath.Join(folder, "rowrelay"), `cd ../.. && go build -o "$OUT" ./cmd/rowrelay`),
		classpath: shell(filepath.Join(folder, "classpath"), `mvn -q -f testdata/tools/pom.xml dependency:build-classpath -Dmdep.outputFile="$OUT"`),
		python: shell(filepath.Join(folder, "python"), `python3 -m venv "$OUT"`,
			`"$OUT/bin/pip" install --quiet "alembic>=1.13,<2" "sqlalchemy>=2,<3" "psycopg[binary]>=3.1,<4" "pymysql>=1,<2"`),
		prisma: shell(filepath.Join(folder, "prisma"), `cp -R testdata/tools "$OUT"`, `cd "$OUT" && npm install --no-audit --no-fund --ignore-scripts`),
	}
}

// migrationTool applies the migrations of a folder, and reverts them.
type migrationTool struct {
	name     string
	folder   string // within the project, if the tool wants it
	targets  []string
	prepare  func(t *testing.T, m *migrated, project string) // before the migration is printed
	up, down func(t *testing.T, m *migrated)
	packages bool // needs packages that aren't Go modules
}

var everyTarget = []string{"postgres15/pgx", "postgres18/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc"}

var migrationTools = []migrationTool{
	{name: "goose", targets: everyTarget, up: gooseUp, down: gooseDown},
	{name: "golang-migrate", targets: everyTarget, up: golangMigrateUp, down: golangMigrateDown},
	{name: "flyway", targets: []string{"postgres18/pgx", "mariadb1011/gosql"}, up: flywayUp, down: runTheWayDown, packages: true},
	{name: "liquibase", targets: []string{"postgres18/pgx", "mariadb1011/gosql", "sqlite/modernc"}, up: liquibaseUp, down: liquibaseDown, packages: true},
	{name: "alembic", folder: "migrations/versions", targets: []string{"postgres18/pgx", "mariadb1011/gosql", "sqlite/modernc"}, prepare: alembicInit, up: alembicUp, down: alembicDown, packages: true},
	{name: "rails", targets: []string{"postgres18/pgx", "sqlite/modernc"}, up: railsUp, down: railsDown, packages: true},
	{name: "prisma", folder: "migrations", targets: []string{"postgres18/pgx"}, prepare: prismaInit, up: prismaUp, down: runTheWayDown, packages: true},
}

// Each tool applies the migration that rowrelay migrate print writes into its folder. Then rowrelay check finds nothing
// missing, and rowrelay migrate up has nothing to do. The tool's down migration leaves no table.
func TestMigrationTools(t *testing.T) {
	t.Parallel()
	box := newToolbox(t)
	for _, tool := range migrationTools {
		for _, target := range testdb.Targets() {
			if !strings.Contains(strings.Join(tool.targets, " "), target.Name) || tool.packages && !*allTools {
				continue
			}
			t.Run(tool.name+" "+target.Name, func(t *testing.T) {
				t.Parallel()
				project := t.TempDir()
				m := &migrated{Database: target.Open(t), toolbox: box, folder: filepath.Join(project, tool.folder)}
				if tool.prepare != nil {
					tool.prepare(t, m, project)
				}
				table, flags := "outbox", []string{"--claim", "rows", "--with-inbox"}
				if m.Kind == testdb.Postgres {
					// The migration creates this schema. It must not have the tests' user as its name, because it would then be
					// the user's default schema, in which tools look for their own tables.
					table, flags = "relayed.outbox", append(flags, "--notify")
				}
				where := []string{"--database", m.URL, "--table", table}
				inbox := []string{"--inbox", "--database", m.URL, "--table", strings.Replace(table, "outbox", "inbox", 1)}
				m.files = strings.Fields(m.rowrelay(t, append([]string{"migrate", "print", "--for", tool.name, "--dir", m.folder}, append(where, flags...)...)...))
				for range 2 { // down and up again
					tool.up(t, m)
					m.rowrelay(t, append([]string{"check", "--claim", "rows"}, where...)...)
					for _, tables := range [][]string{where, inbox} {
						if got := m.rowrelay(t, append([]string{"migrate", "up"}, tables...)...); !strings.Contains(got, "are up to date") {
							t.Errorf("migrate up found something to do: %s", got)
						}
					}
					if got := m.rowrelay(t, append([]string{"migrate", "status", "--json"}, where...)...); m.Kind == testdb.Postgres && !strings.Contains(got, `"notify": true`) {
						t.Errorf("the trigger is missing: %s", got)
					}
					tool.down(t, m)
					for _, tables := range [][]string{where, inbox} {
						if got := m.rowrelay(t, append([]string{"migrate", "status"}, tables...)...); !strings.Contains(got, "pending") {
							t.Errorf("after the way down: %s", got)
						}
					}
				}
			})
		}
	}
}

// rowrelay runs the command, and returns what it prints.
func (m *migrated) rowrelay(t *testing.T, args ...string) string {
	t.Helper()
	binary, err := m.command()
	check(t, err)
	return run(t, "", nil, binary, args...)
}

func run(t *testing.T, folder string, environment []string, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = folder, append(os.Environ(), environment...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

func gooseUp(t *testing.T, m *migrated) {
	t.Helper()
	_, err := m.goose(t).Up(t.Context())
	check(t, err)
}

func gooseDown(t *testing.T, m *migrated) {
	t.Helper()
	_, err := m.goose(t).DownTo(t.Context(), 0)
	check(t, err)
}

func (m *migrated) goose(t *testing.T) *goose.Provider {
	t.Helper()
	dialects := map[string]goose.Dialect{testdb.Postgres: goose.DialectPostgres, testdb.MySQL: goose.DialectMySQL, testdb.MariaDB: goose.DialectMySQL, testdb.SQLite: goose.DialectSQLite3}
	provider, err := goose.NewProvider(dialects[m.Kind], m.DB, os.DirFS(m.folder))
	check(t, err)
	return provider
}

func golangMigrateUp(t *testing.T, m *migrated) {
	t.Helper()
	m.golangMigrate(t, (*migrate.Migrate).Up)
}

func golangMigrateDown(t *testing.T, m *migrated) {
	t.Helper()
	m.golangMigrate(t, (*migrate.Migrate).Down)
}

func (m *migrated) golangMigrate(t *testing.T, do func(*migrate.Migrate) error) {
	t.Helper()
	var db database.Driver
	var err error
	switch m.Kind {
	case testdb.Postgres:
		db, err = migratepgx.WithInstance(m.OpenAnother(t), &migratepgx.Config{})
	case testdb.SQLite:
		db, err = migratesqlite.WithInstance(m.OpenAnother(t), &migratesqlite.Config{})
	default:
		var pool *sql.DB
		pool, err = sql.Open(m.Driver, m.DSN+"&multiStatements=true")
		check(t, err)
		db, err = migratemysql.WithInstance(pool, &migratemysql.Config{})
	}
	check(t, err)
	migrate, err := migrate.NewWithDatabaseInstance("file://"+m.folder, m.Name, db)
	check(t, err)
	check(t, do(migrate))
	source, closed := migrate.Close()
	check(t, source)
	check(t, closed)
}

// runTheWayDown runs the second file as one script, and forgets that the tool has applied the first.
func runTheWayDown(t *testing.T, m *migrated) {
	t.Helper()
	text, err := os.ReadFile(m.files[1])
	check(t, err)
	dsn := m.DSN
	if m.Kind == testdb.MySQL || m.Kind == testdb.MariaDB {
		dsn += "&multiStatements=true"
	}
	db, err := sql.Open(m.Driver, dsn)
	check(t, err)
	_, err = db.ExecContext(t.Context(), string(text))
	check(t, err)
	for _, history := range []string{"flyway_schema_history", "_prisma_migrations"} {
		_, err = db.ExecContext(t.Context(), "DROP TABLE IF EXISTS "+history)
		check(t, err)
	}
	check(t, db.Close())
}

// jdbc returns the arguments by which Java's programs connect.
func (m *migrated) jdbc(t *testing.T) (address, user, password string) {
	t.Helper()
	if m.Kind == testdb.SQLite {
		return "jdbc:" + m.URL, "", ""
	}
	u, err := url.Parse(m.URL)
	check(t, err)
	password, _ = u.User.Password()
	return map[string]string{testdb.Postgres: "jdbc:postgresql://", testdb.MariaDB: "jdbc:mariadb://"}[m.Kind] + u.Host + u.Path, u.User.Username(), password
}

// libraries returns the class path of Java's libraries.
func (m *migrated) libraries(t *testing.T) string {
	t.Helper()
	file, err := m.classpath()
	check(t, err)
	text, err := os.ReadFile(file)
	check(t, err)
	return string(text)
}

func flywayUp(t *testing.T, m *migrated) {
	t.Helper()
	libraries := m.libraries(t)
	address, user, password := m.jdbc(t)
	run(t, "testdata/tools", nil, "java", "-cp", libraries, "Migrate.java", address, user, password, m.folder)
}

func liquibaseUp(t *testing.T, m *migrated) {
	t.Helper()
	m.liquibase(t, "update")
}

func liquibaseDown(t *testing.T, m *migrated) {
	t.Helper()
	m.liquibase(t, "rollback-count", "--count=1")
}

func (m *migrated) liquibase(t *testing.T, args ...string) {
	t.Helper()
	libraries := m.libraries(t)
	address, user, password := m.jdbc(t)
	args = append([]string{"-cp", libraries, "liquibase.integration.commandline.LiquibaseCommandLine", "--show-banner=false", "--url=" + address,
		"--username=" + user, "--password=" + password, "--search-path=" + m.folder, "--changelog-file=" + filepath.Base(m.files[0])}, args...)
	run(t, "", nil, "java", args...)
}

func alembicInit(t *testing.T, m *migrated, project string) {
	t.Helper()
	folder, err := m.python()
	check(t, err)
	run(t, project, nil, filepath.Join(folder, "bin/alembic"), "init", "migrations")
	address := m.URL
	for from, to := range map[string]string{"postgres://": "postgresql+psycopg://", "mariadb://": "mysql+pymysql://", "sqlite:": "sqlite:///"} {
		if rest, found := strings.CutPrefix(m.URL, from); found {
			address = to + rest
		}
	}
	ini := filepath.Join(project, "alembic.ini")
	text, err := os.ReadFile(ini)
	check(t, err)
	before, after, _ := strings.Cut(string(text), "sqlalchemy.url = ")
	_, after, _ = strings.Cut(after, "\n")
	check(t, os.WriteFile(ini, []byte(before+"sqlalchemy.url = "+strings.ReplaceAll(address, "%", "%%")+"\n"+after), 0o600))
	// The new migration follows the project's own.
	run(t, project, nil, filepath.Join(folder, "bin/alembic"), "revision", "-m", "first")
}

func alembicUp(t *testing.T, m *migrated) {
	t.Helper()
	m.alembic(t, "upgrade", "head")
}

func alembicDown(t *testing.T, m *migrated) {
	t.Helper()
	m.alembic(t, "downgrade", "base")
}

func (m *migrated) alembic(t *testing.T, args ...string) {
	t.Helper()
	folder, err := m.python()
	check(t, err)
	run(t, filepath.Dir(filepath.Dir(m.folder)), nil, filepath.Join(folder, "bin/alembic"), args...)
}

func railsUp(t *testing.T, m *migrated) {
	t.Helper()
	m.rails(t, "up")
}

func railsDown(t *testing.T, m *migrated) {
	t.Helper()
	m.rails(t, "down")
}

func (m *migrated) rails(t *testing.T, way string) {
	t.Helper()
	address := strings.NewReplacer("postgres://", "postgresql://", "sqlite:", "sqlite3:").Replace(m.URL)
	run(t, "testdata/tools", nil, "ruby", "migrate.rb", address, m.folder, way)
}

func prismaInit(t *testing.T, m *migrated, project string) {
	t.Helper()
	folder, err := m.prisma()
	check(t, err)
	for _, file := range []string{"prisma.config.ts", "schema.prisma", "package.json"} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(project, file), text, 0o600))
	}
	check(t, os.Symlink(filepath.Join(folder, "node_modules"), filepath.Join(project, "node_modules")))
	check(t, os.Mkdir(m.folder, 0o700))
	check(t, os.WriteFile(filepath.Join(m.folder, "migration_lock.toml"), []byte("provider = \"postgresql\"\n"), 0o600))
}

func prismaUp(t *testing.T, m *migrated) {
	t.Helper()
	project := filepath.Dir(m.folder)
	// Prisma downloads its query engine unless it is given one, but a migration doesn't use it.
	run(t, project, []string{"DATABASE_URL=" + m.URL, "PRISMA_QUERY_ENGINE_LIBRARY=" + filepath.Join(project, "package.json")}, "npx", "prisma", "migrate", "deploy")
}
