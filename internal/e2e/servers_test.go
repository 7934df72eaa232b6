package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// environment returns the address of a server, by the name of an environment variable.
type environment func(variable string) string

// theMachine has the addresses of the servers that all tests share.
var theMachine environment = os.Getenv

// asked returns the address of a server. If the address is missing, the test is skipped, or fails
// if servers are required.
func (e environment) asked(t *testing.T, variable string) string {
	t.Helper()
	address := e(variable)
	if address == "" {
		missing(t, variable)
	}
	return address
}

func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not set: run deploy/servers/servers up and source .servers/env", what)
	}
	t.Skipf("%s is not set", what)
}

// query returns the parameters in a variable's value, which has the form of a URL's query. Its
// last argument names a parameter that must be present, because an older script that started the
// server may not have set this parameter.
func (e environment) query(t *testing.T, variable, with string) url.Values {
	t.Helper()
	values, err := url.ParseQuery(e.asked(t, variable))
	check(t, err)
	if !values.Has(with) {
		missing(t, with+" in "+variable)
	}
	return values
}

// environmentOf returns the shared environment. With -long it starts a server for the test alone,
// which the test may kill, and returns that server's environment.
func environmentOf(t *testing.T, server string) environment {
	t.Helper()
	if !*long {
		return theMachine
	}
	state := t.TempDir()
	runServers(t, state, "up", server)
	t.Cleanup(func() { runServers(t, state, "down", server) })
	text, err := os.ReadFile(filepath.Join(state, "env"))
	check(t, err)
	return func(variable string) string {
		_, rest, _ := strings.Cut(string(text), "export "+variable+"='")
		value, _, _ := strings.Cut(rest, "'")
		return value
	}
}

func runServers(t *testing.T, state string, arguments ...string) {
	t.Helper()
	command := exec.Command("../../deploy/servers/servers", arguments...)
	command.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "ROWRELAY_TEST_")
	}), "ROWRELAY_SERVERS_STATE="+state, "REQUIRE_SERVERS=1")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("servers %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}
