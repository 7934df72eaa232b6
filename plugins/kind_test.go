package plugins_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func TestKind(t *testing.T) {
	t.Parallel()
	sinktest.Kind(t, plugins.Kind(nil),
		map[string]any{"path": "./sink"},
		map[string]any{
			"path": "sink", "args": []any{"-v"}, "config": map[string]any{"subject": "orders"}, "memory": "64MiB", "tls": "false",
			"secrets": map[string]any{"token": "s3cret-token"}, "env": map[string]any{"TZ": "s3cret-zone"},
			"sha256": strings.Repeat("0f", 32), "max_crashes": 2, "crash_pause": "1m",
		})
}

func TestURLs(t *testing.T) {
	t.Parallel()
	registry, err := sinks.NewRegistry(plugins.Kind(nil))
	check(t, err)
	for text, want := range map[string]string{
		"plugin:./a%20b?arg=-x&arg=y&config.url=nats%3A%2F%2Fh%3A1&secrets.token=t0p&env.A=b": "",
		"plugin:///abs/path?tls=false&start_timeout=2s":                                       "",
		"plugin:sink?sha256=12":                "as sha256sum prints it",
		"plugin:":                              "setting path: must not be empty",
		"plugin://host/path":                   "write plugin:path",
		"plugin:./sink?tls=true&tls=false":     "the setting tls is given twice",
		"plugin:./sink?config.a=1&secrets.a=2": "is in both config and secrets",
		"plugin:./sink?path=other":             "the setting path is given twice",
		"plugin:./sink?nonsense=1":             "setting nonsense: is not known",
		"plugin:./sink?config=2":               "setting config: must be a map",
		"plugin:./sink?env.=2":                 "has an invalid name or value",
	} {
		sink, err := registry.FromURL(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if sink != nil {
			check(t, sink.Close(t.Context()))
		}
	}
}

// The program and its sink get the settings of the URL.
func TestURLSettings(t *testing.T) {
	t.Parallel()
	registry, err := sinks.NewRegistry(plugins.Kind(logger(t)))
	check(t, err)
	d := newDestination(t)
	o := options(t, "remote")
	sink, err := registry.FromURL("plugin://" + o.Path + "?arg=remote&directory=" + o.Directory + "&config.url=" + d.url + "&secrets.password=" + url.QueryEscape(password))
	check(t, err)
	t.Cleanup(func() { check(t, sink.Close(context.Background())) })
	check(t, sink.Open(t.Context()))
	if got := sink.Send(t.Context(), batch("a"))[0]; got.Result != sinks.Delivered || got.Receipt != "taken" {
		t.Errorf("outcome %+v", got)
	}
}
