package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	answers := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
			_, _ = fmt.Fprintln(w, text)
		}
	}
	ready := httptest.NewServer(answers(200, "shop: ok"))
	defer ready.Close()
	broken := httptest.NewServer(answers(503, "shop: the database is gone"))
	defer broken.Close()
	secret := httptest.NewTLSServer(answers(200, "shop: ok"))
	defer secret.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler(ready.URL+"/readyz", http.StatusFound))
	defer elsewhere.Close()

	file := func(admin string) string {
		name := filepath.Join(t.TempDir(), "rowrelay.yaml")
		text := "sources: {shop: {database: 'sqlite:shop.db'}}\nsinks: {lines: {type: stdout}}\n" + admin
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	_, port, err := net.SplitHostPort(ready.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"ready":           {[]string{"--admin", ready.Listener.Addr().String()}, 0, "shop: ok"},
		"not ready":       {[]string{"--admin", broken.Listener.Addr().String()}, 1, "not ready: shop: the database is gone"},
		"no relay there":  {[]string{"--admin", elsewhere.Listener.Addr().String()}, 1, "not ready: "},
		"nobody there":    {[]string{"--admin", nobody}, 1, "ask the relay"},
		"by its file":     {[]string{"--config", file("admin: {listen: '0.0.0.0:" + port + "'}")}, 0, "shop: ok"},
		"with TLS":        {[]string{"--config", file("admin: {listen: '" + secret.Listener.Addr().String() + "', tls: {cert_file: a, key_file: b}}")}, 0, "shop: ok"},
		"no admin server": {[]string{"--config", file("")}, 2, "has no admin.listen"},
		"neither":         {nil, 2, "either --config"},
		"both":            {[]string{"--admin", "1", "--config", "x"}, 2, "either --config"},
		"no time":         {[]string{"--admin", "1", "--timeout", "0"}, 2, "--timeout"},
		"not an address":  {[]string{"--admin", "x:y"}, 2, "--admin: "},
		"no such file":    {[]string{"--config", "nowhere.yaml"}, 2, "nowhere.yaml"},
	} {
		got := call(t.Context(), "", append([]string{"healthcheck"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.says) {
			t.Errorf("%s: got %d %s%s, want %d %s", name, got.code, got.stdout, got.stderr, c.code, c.says)
		}
	}
}
