package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// Without a configuration, run takes the tokens of the admin page from the environment. The test isn't parallel, because
// it changes the environment.
func TestRunTakesTokensFromTheEnvironment(t *testing.T) {
	t.Setenv("ROWRELAY_READER_TOKEN", "short")
	if got := call(t.Context(), "", "run", "--database", "sqlite:nowhere.db", "--sink", "discard:", "--admin", "0"); got.code != 2 || !strings.Contains(got.stderr, "$ROWRELAY_READER_TOKEN: the value isn't a token") {
		t.Errorf("got %d %s", got.code, got.stderr)
	}
	t.Setenv("ROWRELAY_READER_TOKEN", "the-token-of-readers")
	for _, target := range testdb.Each() {
		if target.Name != "sqlite/modernc" {
			continue
		}
		db := target.OpenOutbox(t)
		d := start(t, "run", "--database", db.URL, "--sink", "discard:", "--admin", "0")
		line := d.log.wait(t, `"?serving admin requests"? address=(\S+)`)
		address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
		for token, want := range map[string]int{"": 401, "the-token-of-readers": 200} {
			request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/api/messages", nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				request.Header.Set("Authorization", "Bearer "+token)
			}
			answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			if _ = answer.Body.Close(); answer.StatusCode != want {
				t.Errorf("with the token %q got %d, want %d", token, answer.StatusCode, want)
			}
		}
	}
}
