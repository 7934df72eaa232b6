package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if err := os.Unsetenv(databaseVariable); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if binary, err := built(); err == nil {
			_ = os.RemoveAll(filepath.Dir(binary))
		}
		os.Exit(code)
	}))
}

// invalid is a configuration with more than one mistake.
const invalid = `sources:
  shop: {database: "sqlite:x.db", lease: 1ms}
sinks:
  lines: {type: stdot}
`

func TestUsageErrorsHaveExitCode2AndAHint(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "rowrelay.yaml")
	if err := os.WriteFile(file, []byte(invalid), 0o600); err != nil {
		t.Fatal(err)
	}
	two := filepath.Join(folder, "two.yaml")
	if err := os.WriteFile(two, []byte("sources:\n  a: {database: 'sqlite:a.db'}\n  b: {database: 'sqlite:b.db'}\nsinks:\n  d: {type: discard}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	database := "sqlite:" + filepath.Join(folder, "none.db")
	for line, want := range map[string]string{
		"":                                 "rowrelay needs a command",
		"nope":                             `rowrelay has no command "nope"`,
		"stats":                            "did you mean status?",
		"migrate":                          "rowrelay migrate needs a command",
		"migrate upp":                      `rowrelay migrate has no command "upp", did you mean up?`,
		"messages":                         "rowrelay messages needs a command",
		"status --nope":                    "unknown flag: --nope: see rowrelay status --help",
		"status":                           "no database: give --database",
		"status --database":                "flag needs an argument",
		"status hunter2":                   "rowrelay status takes no arguments",
		"version hunter2":                  "takes no arguments",
		"demo hunter2":                     "takes no arguments",
		"status --json=maybe --database x": "invalid argument",
		"status --database hunter2":        "--database: the value isn't a database's URL",
		"status --database mongodb://u:hunter2@h/d":                            "--database: the value isn't a database's URL",
		"status --database postgresql+psycopg://u:hunter2@h/d":                 "write postgres://user:password@host:5432/name, in lower case and without the name of a driver",
		"run --database sqlite:a.db --sink rabbitmq://u:hunter2@h":             "; the URL of a rabbitmq sink begins with amqp: or amqps:",
		"run --database sqlite:a.db --sink amqp+ssl://u:hunter2@h":             "; the URL of a rabbitmq sink begins with amqp: or amqps:",
		"run --database sqlite:a.db --sink redis://u:hunter2@h":                "; other destinations need a plug-in, such as plugin:rowrelay-plugin-nats (see rowrelay plugin list)",
		"run --database sqlite:a.db --sink stdout":                             "; the URL of a stdout sink begins with stdout:",
		"status --database postgres://u:hun#ter2@h/d":                          "percent-encoded",
		"status --database sqlite::memory:":                                    "is in memory",
		"status --table a;b --database " + database:                            `--table: "a;b" isn't a table`,
		"status --table a.b.c --database " + database:                          "isn't a table",
		"status --source x --database " + database:                             "--source needs --config",
		"status --config " + file:                                              file + `:2:42: sources.shop.lease: "1ms" must be at least 1s`,
		"status --config " + file + " ":                                        file + `:4:17: sinks.lines.type: there is no type "stdot": did you mean stdout?`,
		"status --config " + file + ".missing":                                 "does not exist",
		"status --config " + two:                                               "has several sources: a, b",
		"status --source c --config " + two:                                    `has no source "c", it has a, b`,
		"migrate down --config " + two:                                         "--source",
		"status --config " + file + " --database " + database:                  "can't be given together",
		"run --config " + file:                                                 "must be at least",
		"run --config " + file + " --lease 5s --workers 3":                     "--lease, --workers can't be given with --config",
		"run --database " + database:                                           "no sink: give --sink",
		"run --sink stdout:":                                                   "no database: give --database",
		"run --sink ftp://u:hunter2@h --database " + database:                  `the scheme "ftp": it must be one of `,
		"run --sink http://u:hunter2%zz@h --database " + database:              "--sink: the sink's URL is malformed",
		"run --sink stdout: --lease 999ms --database " + database:              `--lease: "999ms" must be at least 1s`,
		"run --sink stdout: --claim keys --database " + database:               `--claim: "keys" must be one of lanes, rows`,
		"run --sink stdout: --pick newest --database " + database:              "--pick and --topics need --claim rows",
		"run --sink stdout: --topics a,b --database " + database:               "--pick and --topics need --claim rows",
		"run --sink stdout: --claim rows --topics a,,b --database " + database: `--topics: "" must not be empty`,
		"run --sink stdout: --claim rows --topics a,a --database " + database:  `--topics: "a" is given twice`,
		"run --sink stdout: --listen on --database " + database:                "--listen can't be on",
		"run --sink stdout: --admin x --database " + database:                  `--admin: "x" isn't an address`,
		"run --sink stdout: --log-level loud --database " + database:           "--log-level",
		"run --sink stdout: --batch 0 --database " + database:                  `--batch: "0" must be at least 1`,
		"run --sink stdout: --retention -1s --database " + database:            `--retention: "-1s" must be at least 1s`,
		"enqueue --batch 0 --database " + database:                             "--batch: 0 isn't between 1 and 10000",
		"enqueue --batch 10001 --database " + database:                         "--batch: 10001 isn't between 1 and 10000",
		"enqueue --batch x --database " + database:                             `invalid argument "x" for "--batch" flag`,
		"enqueue --max-payload 0 --database " + database:                       `--max-payload: "0" must be at least 1B`,
		"enqueue --max-payload 257MiB --database " + database:                  "must be at most 256MiB",
		"migrate up --claim x --database " + database:                          "--claim",
		"messages list x --database " + database:                               `"x" isn't an id`,
		"messages list 0 --database " + database:                               `"0" isn't an id`,
		"messages list --state parked --database " + database:                  `--state: "parked" isn't one of pending, claimed`,
		"messages list --since yesterday --database " + database:               "--since",
		"messages list --limit -1 --database " + database:                      "must be at least 1",
		"messages list --limit 0 --database " + database:                       "must be at least 1",
		"messages show --database " + database:                                 "needs exactly one id",
		"messages show 1 2 --database " + database:                             "needs exactly one id",
		"messages requeue --database " + database:                              "no messages are selected: give ids, filters, or --all",
		"messages requeue --reason invalid --database " + database:             "--error selects by the error",
		"messages discard --database " + database:                              "no messages are selected: give ids, filters, or --all",
		"messages discard --all 1 --database " + database:                      "--all selects every parked message",
		"messages discard --all --topic a --database " + database:              "--all selects every parked message",
		"messages requeue --state done --database " + database:                 "only messages in the state error (parked) can be requeued",
		"messages requeue --all --to a,b --database " + database:               `--to must be the name of one sink, not "a,b"`,
		"messages replay --all --to a,b --database " + database:                `--to must be the name of one sink, not "a,b"`,
		"messages requeue --all --to e --source a --config " + two:             `has no sink "e", it has d`,
		"messages replay --all --to e --source a --config " + two:              `has no sink "e", it has d`,
		"demo --orders 0": "--orders must be between",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := call(t.Context(), "", strings.Fields(line)...)
			if got.code != exitUsage || !strings.Contains(got.stderr, want) {
				t.Errorf("exit code %d, %q; want 2 and %q", got.code, got.stderr, want)
			}
			if strings.Contains(got.stderr+got.stdout, "hunter2") || strings.Contains(got.stderr, "ter2") {
				t.Errorf("shows what may be a secret: %s", got.stderr)
			}
			if got.stdout != "" {
				t.Errorf("printed %q", got.stdout)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(folder, "none.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database file was made: %v", err)
	}
}

func TestUnavailableDatabaseHasExitCode1(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	text := filepath.Join(folder, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"sqlite:" + filepath.Join(folder, "a b.db"): "create it with rowrelay migrate up --database 'sqlite:" + folder,
		"sqlite:" + text:                                    "open sqlite:" + text,
		"sqlite:" + folder:                                  "open sqlite:" + folder,
		"postgres://u:hunter2@127.0.0.1:1/d":                "open postgres://u:xxxxx@127.0.0.1:1/d: ",
		"postgres://u:hunter2@127.0.0.1:1/d?sslmode=hunter": "open postgres://u:xxxxx@127.0.0.1:1/d?sslmode=hunter: the URL can't be parsed: failed to configure TLS (sslmode is invalid)",
		"postgres://h/d?password=hunter2&sslmode=disabled":  "open postgres://h/d?password=xxxxx&sslmode=disabled: the URL can't be parsed: failed to configure TLS (sslmode is invalid)",
		"postgres://u:hunter2@no-such-host.invalid:5432/d":  "check the host and port of the URL",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			for _, command := range []string{"status", "enqueue", "migrate status"} {
				got := call(t.Context(), "", append(strings.Fields(command), "--database", url)...)
				if got.code != exitFailed || !strings.Contains(got.stderr, want) || strings.Contains(got.stderr, "hunter2") {
					t.Errorf("%s: exit code %d, %q; want 1 and %q", command, got.code, got.stderr, want)
				}
			}
		})
	}
}

func TestAFileWithStrangeCharactersInItsName(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "50% \"off\" & 'so' #1 + on ä%20.db")
	mustRun(t, "migrate", "up", "--database", url)
	if _, err := os.Stat(strings.TrimPrefix(url, "sqlite:")); err != nil {
		t.Error(err)
	}
	if got := mustRun(t, "migrate", "status", "--database", url); !strings.Contains(got.stdout, "applied") {
		t.Errorf("stdout is %q", got.stdout)
	}
}

// full is a writer that fails like a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestUnwritableOutputIsAnError(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"--help"}, {"migrate", "print", "--database", "postgres://"}} {
		p := program{stdin: strings.NewReader(""), stdout: full{}, stderr: &stderr}
		if code := p.run(t.Context(), args); code != exitFailed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%v: exit code %d, %q", args, code, &stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := mustRun(t, "version"); !strings.HasPrefix(got.stdout, "rowrelay ") || !strings.Contains(got.stdout, "go1.") {
		t.Errorf("stdout is %q", got.stdout)
	}
	if got := mustRun(t, "version", "--json"); !strings.Contains(got.stdout, `"version": "`) || !strings.Contains(got.stdout, `"revision": "`) {
		t.Errorf("stdout is %q", got.stdout)
	}
}

func TestVersionFlagPrintsWhatTheCommandPrints(t *testing.T) {
	t.Parallel()
	if flag, command := mustRun(t, "--version"), mustRun(t, "version"); flag.stdout != command.stdout || !strings.HasPrefix(flag.stdout, "rowrelay ") {
		t.Errorf("--version printed %q, and version %q", flag.stdout, command.stdout)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := mustRun(t, "completion", shell); !strings.Contains(got.stdout, "rowrelay") {
			t.Errorf("%s: got %q", shell, got.stdout)
		}
	}
	got := mustRun(t, "__complete", "migrate", "")
	for _, name := range []string{"up", "down", "status", "print"} {
		if !strings.Contains(got.stdout, name+"\t") {
			t.Errorf("%s isn't offered: %q", name, got.stdout)
		}
	}
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"": "''", "sqlite:/a/b.db": "sqlite:/a/b.db", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "a?b&c": "'a?b&c'",
	} {
		if got := shellQuote(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}
