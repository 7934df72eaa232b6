package main

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// A shell completes values from the program, the configuration and the table. If the configuration or the
// table can't be read, it completes nothing.
func TestCompletionOfValues(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		endpoint := newWeb(t, always(http.StatusOK))
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain")
		mustCall(t, `{"topic":"waiting"}`, "enqueue", "--database", db.URL)
		mustRun(t, "pause", "sink", "billing", "--database", db.URL)
		file := filepath.Join(t.TempDir(), "rowrelay.yaml")
		text := "sources:\n  shop: {database: '" + db.URL + "'}\n  other: {database: 'sqlite:other.db'}\nsinks:\n  audit: {type: discard}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		from := " --database " + db.URL
		for line, want := range map[string]string{
			"messages list --state ":                                 "claimed done error pending retry scheduled",
			"messages list --state re":                               "retry",
			"messages list" + from + " --topic ":                     "fine mails orders waiting",
			"messages discard" + from + " --topic o":                 "orders",
			"tail" + from + " --topic w":                             "waiting",
			"pause" + from + " ":                                     "key relay sink topic",
			"resume" + from + " sink ":                               "billing",
			"limit" + from + " ":                                     "sink",
			"pause --config " + file + " --source shop sink ":        "audit billing",
			"status --config " + file + " --source ":                 "other shop",
			"migrate up --claim ":                                    "lanes rows",
			"run --log-level w":                                      "warn",
			"messages list --database sqlite:/no/such/file --topic ": "",
		} {
			args := strings.Fields(line)
			if strings.HasSuffix(line, " ") {
				args = append(args, "")
			}
			got := mustRun(t, append([]string{"__complete"}, args...)...)
			var found []string
			for offered := range strings.Lines(got.stdout) {
				if !strings.HasPrefix(offered, ":") {
					found = append(found, strings.TrimSpace(offered))
				}
			}
			if !slices.Equal(found, strings.Fields(want)) {
				t.Errorf("%s: offered are %v, want %s", line, found, want)
			}
		}
	})
}
