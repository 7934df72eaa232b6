package plugins_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Each kind of failed start has an error that explains it, and leaves no files
// behind.
func TestErrorOfAFailedStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fake   string
		change func(*plugins.Options)
		reason sinks.Reason
		want   string
	}{
		"rubbish":                 {"rubbish", nil, sinks.ReasonConfig, `it printed "\x00rubbish`},
		"other version":           {"newer", nil, sinks.ReasonConfig, `it speaks version "2" of the plug-in protocol, and this relay speaks version 1`},
		"other transport":         {"netrpc", nil, sinks.ReasonConfig, "it doesn't speak gRPC"},
		"no certificate":          {"bare", nil, sinks.ReasonConfig, "set tls: false"},
		"no such socket":          {"bare", func(o *plugins.Options) { o.NoTLS = true }, sinks.ReasonConnection, "/tmp/nowhere"},
		"bad certificate":         {"nobody", nil, sinks.ReasonConnection, "cert"},
		"unrequested certificate": {"insists", func(o *plugins.Options) { o.NoTLS = true }, sinks.ReasonConfig, "a certificate although tls is false"},
		"silent":                  {"silent", func(o *plugins.Options) { o.StartTimeout = 300 * time.Millisecond }, sinks.ReasonConnection, "no handshake line within 300ms"},
		"exits immediately":       {"ends", nil, sinks.ReasonConnection, "it exited immediately (exit status 3): there is no licence for [secret]"},
		"missing program":         {"", func(o *plugins.Options) { o.Path = "./no/such/program" }, sinks.ReasonConfig, "./no/such/program can't be run"},
		"not in PATH":             {"", func(o *plugins.Options) { o.Path = "no-such-program" }, sinks.ReasonConfig, "executable file not found"},
		"not executable":          {"", func(o *plugins.Options) { o.Path = "README.md" }, sinks.ReasonConfig, "check that the path is right and the file is executable"},
		"checksum":                {"remote", func(o *plugins.Options) { o.SHA256 = strings.Repeat("0f", 32) }, sinks.ReasonConfig, "not the configured 0f0f"},
		"settings":                {"remote", nil, sinks.ReasonConfig, "setting url: is required"},
		"no directory":            {"remote", func(o *plugins.Options) { o.Directory = "/no/such/directory" }, sinks.ReasonConfig, "set directory to a writable directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, test.fake)
			o.Secrets = map[string]settings.Secret{"text": "s3cret-text"}
			if name == "settings" {
				o.Secrets = nil
			}
			if test.change != nil {
				test.change(&o)
			}
			sink := newSink(t, o)
			t.Cleanup(func() { check(t, sink.Close(context.Background())) })
			var opening *sinks.OpenError
			err := sink.Open(t.Context())
			if !errors.As(err, &opening) || opening.Reason != test.reason || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Open: %v, want %s with %q", err, test.reason, test.want)
			}
			if o := sink.Send(t.Context(), batch("a"))[0]; name != "settings" && o.Result != sinks.Unavailable {
				t.Errorf("Send: %+v", o)
			}
		})
	}
}

// The system's temporary directory may have a long path: on macOS it has 49 bytes. The path
// of a socket is limited; the error for a path over the limit names the directory setting.
func TestSocketPathLimit(t *testing.T) {
	t.Parallel()
	long := func(length int) string {
		path := filepath.Join(directory(t), strings.Repeat("d", 200))
		path = path[:length]
		check(t, os.MkdirAll(path, 0o700))
		t.Cleanup(func() { check(t, os.Remove(path)) })
		return path
	}
	o := options(t, "scripted")
	o.Directory = long(plugins.SocketPathLimit - 44)
	ask(t, running(t, o), "hello")

	o.Directory = long(plugins.SocketPathLimit - 43)
	sink := newSink(t, o)
	t.Cleanup(func() { check(t, sink.Close(context.Background())) })
	var opening *sinks.OpenError
	err := sink.Open(t.Context())
	if !errors.As(err, &opening) || opening.Reason != sinks.ReasonConfig || !strings.Contains(err.Error(), "set directory to a shorter path") {
		t.Errorf("Open: %v", err)
	}
}

// The relay runs a copy of the program whose checksum it has checked, even if the original
// file is replaced.
func TestChecksum(t *testing.T) {
	t.Parallel()
	o := options(t, "scripted")
	text, err := os.ReadFile(o.Path)
	check(t, err)
	o.Path = filepath.Join(t.TempDir(), "program")
	check(t, os.WriteFile(o.Path, text, 0o700))
	sum := sha256.Sum256(text)
	o.SHA256 = strings.ToUpper(hex.EncodeToString(sum[:]))
	sink := running(t, o)
	if got := ask(t, sink, "exe"); !strings.HasPrefix(got, sink.Home()) {
		t.Errorf("%s runs, which is not in %s", got, sink.Home())
	}
	check(t, os.WriteFile(o.Path, append(text, 0), 0o700))
	ask(t, sink, "exe")
	if got := sink.Send(t.Context(), orders("die"))[0]; got.Result != sinks.Retry {
		t.Errorf("outcome %+v", got)
	}
	if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "the program was replaced") {
		t.Errorf("Open after the program was changed: %v", err)
	}
}

// A plug-in gets only the environment variables that the operator has set, and other users
// can't see its socket.
func TestEnvironmentAndSocketArePrivate(t *testing.T) {
	t.Parallel()
	o := options(t, "scripted")
	o.Env["GREETING"], o.Memory = "hello", 1<<30
	sink := running(t, o)
	own := "GOMEMLIMIT GORACE GREETING PLUGIN_CLIENT_CERT PLUGIN_MAX_PORT PLUGIN_MIN_PORT PLUGIN_PROTOCOL_VERSIONS PLUGIN_UNIX_SOCKET_DIR ROWRELAY_PLUGIN"
	if got := ask(t, sink, "env"); got != own {
		t.Errorf("the environment has\n%s, want\n%s", got, own)
	}
	info, err := os.Stat(sink.Home())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the home has mode %v (%v)", info.Mode(), err)
	}
}

// After some restarts, a plug-in that always crashes is restarted only after a pause.
func TestCrashingPluginIsPaused(t *testing.T) {
	t.Parallel()
	o := options(t, "ends")
	o.MaxCrashes, o.CrashPause = 2, time.Hour
	sink := newSink(t, o)
	for range 2 {
		if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "exited immediately") {
			t.Errorf("Open: %v", err)
		}
	}
	err := sink.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exited 2 times in succession without delivering anything; it is restarted after") ||
		!strings.Contains(err.Error(), "there is no licence") {
		t.Errorf("Open: %v", err)
	}
	check(t, sink.Close(t.Context()))
}

// A plug-in that delivers between its crashes is restarted each time.
func TestUsefulPluginIsRestartedAfterEachCrash(t *testing.T) {
	t.Parallel()
	o := options(t, "scripted")
	o.MaxCrashes, o.CrashPause = 1, time.Hour
	sink := running(t, o)
	for range 3 {
		ask(t, sink, "hello")
		sink.Send(t.Context(), orders("die"))
		check(t, sink.Open(t.Context()))
	}
	sink.Send(t.Context(), orders("die"))
	if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "is restarted after") {
		t.Errorf("Open after a crash without a delivery: %v", err)
	}
}

// running opens a sink, and closes it at the end of the test.
func running(t testing.TB, o plugins.Options) *plugins.Sink {
	t.Helper()
	sink := newSink(t, o)
	t.Cleanup(func() { check(t, sink.Close(context.Background())) })
	check(t, sink.Open(t.Context()))
	return sink
}

// ask sends an instruction to a scripted plug-in and returns the receipt.
func ask(t testing.TB, sink *plugins.Sink, order string) string {
	t.Helper()
	o := sink.Send(t.Context(), orders(order))[0]
	if o.Result != sinks.Delivered {
		t.Fatalf("order %q: %+v", order, o)
	}
	return o.Receipt
}

// orders returns messages without a key that tell a scripted plug-in what to do.
func orders(texts ...string) []sinks.Message {
	messages := batch(make([]string, len(texts))...)
	for i, text := range texts {
		messages[i].ID, messages[i].Payload = "order "+text, []byte(text)
	}
	return messages
}

// go-plugin's time limit is longer than the relay's. With equal limits, a plug-in that didn't
// answer was sometimes reported as killed.
func TestGoPluginStartTimeoutIsLonger(t *testing.T) {
	t.Parallel()
	if got := plugins.GoPluginLimit(plugins.Options{StartTimeout: time.Second}); got < time.Minute {
		t.Errorf("go-plugin's limit is %v, which may end before the relay's", got)
	}
}
