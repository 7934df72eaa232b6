package main

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/config"
)

// Errors contain no password, even for databases without a test server.
func TestErrorsWithoutAServerHideThePassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"sqlserver://u:hunter2@127.0.0.1:1?database=d":                     "check the host and port of the URL",
		"sqlserver://u:hunter2@h?database=d&timezone=Europe/Berlin":        "the URL can't be parsed: the parameter timezone must be UTC",
		"sqlserver://u:hunter2@h?database=d&encrypt=perhaps":               "the URL can't be parsed: ",
		"sqlserver://h?database=d&user+id=u&password=hunter2&keepalive=no": "the URL can't be parsed: ",
		"oracle://u:hunter2@127.0.0.1:1/d":                                 "check the host and port of the URL",
	} {
		database, err := config.ParseDatabase(address)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := driverOf(database.Kind()); !ok {
			want = "was built without a driver for oracle; build one that has it with go build -tags oracle ./cmd/rowrelay"
		}
		_, _, err = openDatabase(t.Context(), database, pool{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q in it", address, err, want)
		}
	}
}
