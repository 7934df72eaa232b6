package httpsink_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/sinks"
)

// Every secret of a configuration can be read from a file, including the secrets of
// a map.
func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	var got http.Header
	url := answering(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	for setting, test := range map[string]struct{ content, header, want string }{
		"bearer_token_file: FILE":               {"t0ken\n", "Authorization", "Bearer t0ken"},
		"username: u\n    password_file: FILE":  {"p4ss", "Authorization", "Basic dTpwNHNz"},
		"signing_secret_file: FILE":             {oldSecret, "Webhook-Signature", "v1,"},
		"headers: {X-Key: v, X-Api_file: FILE}": {"k3y\n", "X-Api", "k3y"},
	} {
		folder := t.TempDir()
		check(t, os.WriteFile(filepath.Join(folder, "secret"), []byte(test.content), 0o600))
		text := "sources: {s: {database: 'sqlite:x.db'}}\nsinks:\n  h:\n    type: http\n    url: " + url + "\n    " + strings.Replace(setting, "FILE", "secret", 1) + "\n"
		c, err := config.Parse(filepath.Join(folder, "rowrelay.yaml"), []byte(text), registry(t))
		check(t, err)
		sink, err := c.Sinks[0].Make(registry(t))
		check(t, err)
		if o := sendOne(t, sink, message("k")); o.Result != sinks.Delivered || !strings.HasPrefix(got.Get(test.header), test.want) {
			t.Errorf("%s: %s is %q, want %q; %+v", setting, test.header, got.Get(test.header), test.want, o)
		}
		check(t, sink.Close(t.Context()))
	}
}
