package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"A": "1", "B_2": "two", "EMPTY": "", "TRICK": "${A}"}[name]
		return value, ok
	}
	for text, want := range map[string]string{
		"":                        "",
		"plain $5 $A $":           "plain $5 $A $",
		"${A}":                    "1",
		"x${A}y${B_2}z":           "x1ytwoz",
		"${MISSING:-default}":     "default",
		"${EMPTY:-default}":       "default",
		"${MISSING:-}":            "",
		"${EMPTY}":                "",
		"${A:-unused}":            "1",
		"$${A}":                   "${A}",
		"$$${A}":                  "$${A}",
		"${TRICK}":                "${A}",
		"${MISSING:-http://x:80}": "http://x:80",
	} {
		if got, err := expand(text, env); got != want || err != nil {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string][]string{
		"${MISSING}":      {"needs the environment variable MISSING, which isn't set"},
		"${ONE} ${TWO}":   {"variable ONE", "variable TWO"},
		"${A":             {"has a ${ without its }"},
		"${}":             {"has ${}, which isn't a variable"},
		"${1A}":           {"has ${1A}, which isn't a variable"},
		"${A-b}":          {"has ${A-b}, which isn't a variable"},
		"${A:b}":          {"isn't a variable"},
		"${MISSING} ${A":  {"MISSING", "without its }"},
		"${A} ${Ä}":       {"isn't a variable"},
		"${ A }":          {"isn't a variable"},
		"before ${A\n}${": {"isn't a variable", "without its }"},
	} {
		_, err := expand(text, env)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: got %v, want %q in it", text, err, part)
			}
		}
	}
}

func TestAMissingVariableIsNamedWithItsLine(t *testing.T) {
	t.Parallel()
	_, err := parse(t, `sources:
  shop:
    database: postgres://u:${ROWRELAY_TEST_NO_SUCH}@h/d
    lease: ${ROWRELAY_TEST_NO_LEASE:-300ms}
sinks:
  nothing:
    type: http
    url: ${ROWRELAY_TEST_NO_URL}
    networks: ["${ROWRELAY_TEST_NO_NETWORK}"]
`)
	compareLines(t, err, []string{
		"rowrelay.yaml:3:15: sources.shop.database: needs the environment variable ROWRELAY_TEST_NO_SUCH, which isn't set: set it, or give a default with ${ROWRELAY_TEST_NO_SUCH:-…}",
		`rowrelay.yaml:4:12: sources.shop.lease: "${ROWRELAY_TEST_NO_LEASE:-300ms}" must be at least 1s`,
		"rowrelay.yaml:8:10: sinks.nothing.url: needs the environment variable ROWRELAY_TEST_NO_URL, which isn't set: set it, or give a default with ${ROWRELAY_TEST_NO_URL:-…}",
		"rowrelay.yaml:9:16: sinks.nothing.networks[0]: needs the environment variable ROWRELAY_TEST_NO_NETWORK, which isn't set: set it, or give a default with ${ROWRELAY_TEST_NO_NETWORK:-…}",
	})
}

func TestVariablesCannotChangeTheFilesShape(t *testing.T) {
	t.Setenv("ROWRELAY_TEST_SHAPE", "x\n  evil: {type: discard}")
	c := mustParse(t, strings.Replace(smallest, "{type: discard}", `{type: http, url: "${ROWRELAY_TEST_SHAPE}"}`, 1))
	if len(c.Sinks) != 1 || c.Sinks[0].Settings["url"] != "x\n  evil: {type: discard}" {
		t.Errorf("got %+v", c.Sinks)
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"url": "postgres://u:p@h/d\n", "token": "a b\r\n", "two": "x\n\n", "nothing": "\n",
		"long": strings.Repeat("x", maxSecret+1), "longest": strings.Repeat("x", maxSecret),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := func(database, token string) []byte {
		return []byte("sources:\n  s:\n    " + database + "\nsinks:\n  w:\n    type: http\n    url: x\n    " + token + "\n")
	}
	file := filepath.Join(folder, "rowrelay.yaml")
	for token, want := range map[string]string{
		"token_file: token": "a b", "token_file: two": "x\n", "token: plain": "plain",
		"token_file: longest":                  strings.Repeat("x", maxSecret),
		"token_file: '" + folder + "/./token'": "a b",
	} {
		c, err := Parse(file, text("database_file: url", token), kinds())
		if err != nil {
			t.Errorf("%s: %v", token, err)
			continue
		}
		if c.Sources[0].Database.Secret() != "postgres://u:p@h/d" || c.Sinks[0].Settings["token"] != want {
			t.Errorf("%s: got %q and %q", token, c.Sources[0].Database.Secret(), c.Sinks[0].Settings["token"])
		}
	}
	for token, want := range map[string]string{
		"token_file: missing":                 "8:17: sinks.w.token_file: can't be read: open ",
		"token_file: nothing":                 "sinks.w.token_file: names an empty file",
		"token_file: long":                    "sinks.w.token_file: is too long",
		"token_file: .":                       "is a folder",
		"token_file: [a]":                     "needs a value, not a list",
		"token_file: token\n    token: plain": "sinks.w.token_file: is given together with token: remove one of them",
		"url_file: token":                     "sinks.w.url_file: is not a setting here",
	} {
		_, err := Parse(file, text("database_file: url", token), kinds())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", token, err, want)
		}
	}
	_, err := Parse(file, text("database_file: token", "token: x"), kinds())
	if err == nil || strings.Contains(err.Error(), "a b") || !strings.Contains(err.Error(), "3:20: sources.s.database_file: the value isn't a database's URL") {
		t.Errorf("got %v, want an error without the file's content", err)
	}
}

func TestSecretsInAMapFromFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte("Bearer hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(headers string) (Config, error) {
		text := strings.Replace(smallest, "{type: discard}", "{type: http, url: x, headers: {"+headers+"}}", 1)
		return Parse(filepath.Join(folder, "rowrelay.yaml"), []byte(text), kinds())
	}
	c, err := read("Authorization_file: token, B: c")
	want := map[string]any{"Authorization": "Bearer hunter2", "B": "c"}
	if err != nil || !reflect.DeepEqual(c.Sinks[0].Settings["headers"], want) {
		t.Errorf("got %v, %v", c.Sinks[0].Settings, err)
	}
	for headers, want := range map[string]string{
		"A_file: missing":     "sinks.nothing.headers.A_file: can't be read",
		"A_file: token, A: b": "sinks.nothing.headers.A_file: is given together with A",
	} {
		if _, err := read(headers); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", headers, err, want)
		}
	}
}
