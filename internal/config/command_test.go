package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// runs is a program that prints the numbers of its runs, or fails.
type runs struct {
	mu    sync.Mutex
	n     int
	fails error
	takes time.Duration
}

func (p *runs) run(ctx context.Context, _ []string) (stdout, stderr []byte, err error) {
	p.mu.Lock()
	p.n++
	n, fails, takes := p.n, p.fails, p.takes
	p.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, nil, errors.New("killed")
	}
	if fails != nil {
		return nil, []byte("  the first line\nthe second\n"), fails
	}
	return fmt.Appendf(nil, "secret-%d\n", n), nil, nil
}

func (p *runs) becomes(takes time.Duration, fails error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takes, p.fails = takes, fails
}

// A command runs again before its secret is too old, without a wait. A wait happens only for the first secret, for one that is
// too old, and after a refusal.
func TestCommandsRunInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		program := &runs{takes: time.Second}
		c := &command{argv: []string{"/bin/program", "argument"}, timeout: 10 * time.Second, cache: 10 * time.Minute, run: program.run}
		want := func(how urgency, secret string, waited time.Duration) {
			t.Helper()
			began := time.Now()
			got, err := c.text(t.Context(), how)
			if got != secret || err != nil || time.Since(began) != waited {
				t.Errorf("got %s after %v, %v, want %s after %v", got, time.Since(began), err, secret, waited)
			}
		}
		want(inTime, "secret-1", time.Second)
		time.Sleep(7 * time.Minute)
		want(inTime, "secret-1", 0)
		time.Sleep(61 * time.Second)
		want(inTime, "secret-1", 0) // another run starts
		time.Sleep(time.Second)
		synctest.Wait()
		want(inTime, "secret-2", 0)
		time.Sleep(time.Hour)
		want(lastKnown, "secret-2", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		want(inTime, "secret-3", 0)
		time.Sleep(time.Hour)
		want(inTime, "secret-4", time.Second)
		want(refused, "secret-4", 0) // it is only a second old
		time.Sleep(commandPause)
		want(refused, "secret-5", time.Second)
		synctest.Wait()
	})
}

// If a command fails or hangs, its previous secret is returned with the error, without a wait. The command runs again after a
// pause.
func TestFailingCommandsKeepTheirSecret(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes time.Duration
		fails error
		want  string
	}{
		"fails": {time.Second, errors.New("exit status 7"), "the command program failed: exit status 7: the first line"},
		"hangs": {time.Hour, nil, "the command program hasn't ended within its timeout of 10s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			program := &runs{}
			c := &command{argv: []string{"/bin/program"}, timeout: 10 * time.Second, cache: 10 * time.Minute, run: program.run}
			program.becomes(test.takes, test.fails)
			if got, err := c.text(t.Context(), inTime); got != "" || err == nil || err.Error() != test.want {
				t.Errorf("%s, first run: %q, %v", name, got, err)
			}
			program.becomes(0, nil)
			time.Sleep(2 * commandPause)
			if got, err := c.text(t.Context(), inTime); got != "secret-2" || err != nil {
				t.Fatalf("%s, second run: %q, %v", name, got, err)
			}
			program.becomes(test.takes, test.fails)
			time.Sleep(time.Hour)
			if got, err := c.text(t.Context(), inTime); got != "secret-2" || err == nil || err.Error() != test.want {
				t.Errorf("%s: %q, %v, want the previous secret and an error", name, got, err)
			}
			began := time.Now()
			for range 100 {
				if got, err := c.text(t.Context(), inTime); got != "secret-2" || err == nil {
					t.Errorf("%s: %q, %v, want the previous secret and an error", name, got, err)
				}
			}
			if program.n != 3 || time.Since(began) > 0 {
				t.Errorf("%s: %d runs, and waits of %v", name, program.n, time.Since(began))
			}
			program.becomes(0, nil)
			time.Sleep(time.Minute)
			_, _ = c.text(t.Context(), inTime)
			synctest.Wait()
			if got, err := c.text(t.Context(), inTime); got == "secret-2" || err != nil {
				t.Errorf("%s, repaired: %q, %v", name, got, err)
			}
		})
	}
}

// Errors show the first line of a program's standard error, without secrets, and only if the program has printed nothing else.
func TestErrorsOfCommands(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		want   string
	}{
		"stderr":           {`echo "no route to the vault" >&2; echo more >&2; exit 3`, "the command sh failed: exit status 3: no route to the vault"},
		"stdout":           {`echo s3cret-s3cret-s3cret; echo s3cret-s3cret-s3cret >&2; exit 3`, "the command sh failed: exit status 3"},
		"argument":         {`echo "refused: $0" >&2; exit 1`, "the command sh failed: exit status 1: refused: [secret]"},
		"nothing":          {`true`, "the command sh printed nothing"},
		"only a new line":  {`echo`, "the command sh printed nothing"},
		"too much":         {`head -c 70000 /dev/zero`, "the command sh printed more than 65536 bytes"},
		"a hanging child":  {`sleep 1000 & sleep 1000`, "the command sh hasn't ended within its timeout of 300ms"},
		"endless, in time": {`yes`, "the command sh hasn't ended within its timeout of 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommands().of(commandSettings{Command: []string{"sh", "-c", test.script, "an-argument-that-is-long"}, Timeout: 300 * time.Millisecond})
			if !strings.Contains(name, "in time") && !strings.Contains(name, "hanging") {
				c.timeout = 5 * time.Minute
			}
			if got, err := c.text(t.Context(), inTime); got != "" || err == nil || err.Error() != test.want {
				t.Errorf("%q, %v, want %s", got, err, test.want)
			}
		})
	}
	if _, err := newCommands().of(commandSettings{Command: []string{"/nowhere/program"}}).text(t.Context(), inTime); err == nil || !strings.Contains(err.Error(), "the command program failed: ") {
		t.Errorf("a missing program: %v", err)
	}
}

// Secrets of sources, sinks and the admin server can come from commands. Load runs each command once.
func TestSecretsFromCommands(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, log := filepath.Join(folder, "rowrelay.yaml"), filepath.Join(folder, "log")
	write(t, file, `
sources:
  url: {database_command: [sh, -c, "echo a >>`+log+`; echo postgres://u:p@h/d"]}
  password: {database: "postgres://u@h/d", password_command: [echo, "host:5432/?Action=connect&X=%2F"]}
  file: {database: "mysql://u@h/d", password_file: word}
sinks:
  one: {type: http, url: "https://h", bearer_token_command: {command: [sh, -c, "echo b >>`+log+`; echo t0ken"], timeout: 20s, cache: 1h}}
  two: {type: http, url: "https://h", bearer_token_command: {command: [sh, -c, "echo b >>`+log+`; echo t0ken"], timeout: 20s, cache: 1h}}
  three: {type: http, url: "https://h", headers: {X-Key_command: [echo, key]}}
routes: [{topic: a, sink: one}, {topic: b, sink: two}, {topic: c, sink: three}]
admin: {listen: 8321, reader_token_command: [echo, reader-reader-reader]}
`)
	write(t, filepath.Join(folder, "word"), "p/w\n")
	kinds, err := sinks.NewRegistry(httpsink.Kind())
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, kinds)
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, source := range c.Sources {
		urls = append(urls, source.Database.Secret())
		if now, err := source.Database.Current(t.Context()); err != nil || now.Secret() != source.Database.Secret() || !now.Renewable() {
			t.Errorf("%s: %v, %v", source.Name, now, err)
		}
	}
	if got, want := strings.Join(urls, " "), "postgres://u:p@h/d postgres://u:host%3A5432%2F%3FAction=connect&X=%252F@h/d mysql://u:p%2Fw@h/d"; got != want {
		t.Errorf("the databases are %s, want %s", got, want)
	}
	if c.Sinks[0].Settings["bearer_token"] != "t0ken" || fmt.Sprint(c.Sinks[2].Settings["headers"]) != "map[X-Key:key]" || c.Admin.ReaderToken != "reader-reader-reader" {
		t.Errorf("the secrets are %v", c.Sinks)
	}
	if again, err := c.Again(); err != nil || again.Sinks[0].State() != c.Sinks[0].State() {
		t.Errorf("read again: %v", err)
	}
	if text, err := os.ReadFile(log); string(text) != "a\nb\n" || err != nil {
		t.Errorf("the commands ran as %q, %v", text, err)
	}
	if only, err := LoadSources(file, kinds); err != nil || only.Sources[0].Database.Secret() != urls[0] || only.Sinks[0].Settings["bearer_token"] != nil {
		t.Errorf("the sources alone: %v", err)
	}
	if text, _ := os.ReadFile(log); string(text) != "a\nb\na\n" {
		t.Errorf("the commands ran as %q", text)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(file, content, kinds); err != nil {
		t.Errorf("Parse: %v", err)
	}
	if text, _ := os.ReadFile(log); string(text) != "a\nb\na\n" {
		t.Errorf("Parse has run commands: %q", text)
	}
}

func TestWrongCommands(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "token"), "t0ken")
	for settings, want := range map[string]string{
		"bearer_token_command: aws":                                     "bearer_token_command: needs a list of the program and its arguments",
		"bearer_token_command: []":                                      "bearer_token_command: needs a list of the program and its arguments",
		`bearer_token_command: [""]`:                                    "bearer_token_command[0]: is empty",
		"bearer_token_command: [a, [b]]":                                "bearer_token_command[1]: needs a value, not a list",
		"bearer_token_command: {timeout: 1s}":                           "bearer_token_command: needs a command",
		"bearer_token_command: {command: [a], timeout: 6m}":             "bearer_token_command.timeout: ",
		"bearer_token_command: {command: [a], cache: 0s}":               "bearer_token_command.cache: ",
		"bearer_token_command: {command: [a], retry: 0s}":               "bearer_token_command.retry: is not a setting here",
		"bearer_token_command: [echo, a], bearer_token: b":              "bearer_token_command: is given together with bearer_token",
		"bearer_token_command: [echo, a], bearer_token_file: token":     "bearer_token_command: is given together with bearer_token_file",
		"bearer_token_command: [sh, -c, exit 3]":                        "bearer_token_command: the command sh failed: exit status 3",
		`bearer_token_command: [sh, -c, 'printf "a\nb"']`:               "bearer_token_command: ",
		"url_command: [echo, a]":                                        "url_command: is not a setting here",
		"headers: {A_command: [sh, -c, 'echo no such key >&2; false']}": "headers.A_command: the command sh failed: exit status 1: no such key",
	} {
		file := filepath.Join(folder, "rowrelay.yaml")
		kinds, err := sinks.NewRegistry(httpsink.Kind())
		if err != nil {
			t.Fatal(err)
		}
		_, err = load(file, []byte("sources: {s: {database: 'sqlite:s.db'}}\nsinks: {h: {type: http, url: 'https://h', "+settings+"}}\n"), kinds, newCommands(), false)
		var problems *Problems
		if !errors.As(err, &problems) || !strings.Contains(err.Error(), "sinks.h."+want) || problems.MayPass() != strings.Contains(want, "failed") {
			t.Errorf("%s: %v, want %s", settings, err, want)
		}
	}
	for settings, want := range map[string]string{
		"database: 'sqlite:s.db', password: a":           "password: needs a database with a user in its URL",
		"database: 'postgres://h/d', password: a":        "password: needs a database with a user in its URL",
		"database: 'postgres://u@h/d', password: ''":     "password: the value",
		"database: 'postgres://u:v@h/d', password: a":    "",
		"database_command: [echo, nonsense]":             "database_command: the value isn't a database's URL",
		"database_command: [sh, -c, 'exit 4']":           "database_command: the command sh failed: exit status 4",
		"database: 'mysql://u@h/d', password_file: no":   "password_file: can't be read",
		"database: 'mysql://u@h/d', password_command: 1": "password_command: needs a list",
	} {
		_, err := load(filepath.Join(folder, "rowrelay.yaml"), []byte("sources: {s: {"+settings+"}}\nsinks: {n: {type: discard}}\n"), kinds(), newCommands(), false)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "sources.s."+want)) {
			t.Errorf("%s: %v, want %s", settings, err, want)
		}
	}
}
