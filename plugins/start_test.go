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

// Each way of being no good plug-in has an error that says so; nothing is left
// behind.
func TestWhatCannotBeStarted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fake   string
		change func(*plugins.Options)
		reason sinks.Reason
		want   string
	}{
		"rubbish":         {"rubbish", nil, sinks.ReasonConfig, `it printed "\x00rubbish`},
		"other version":   {"newer", nil, sinks.ReasonConfig, `it speaks version "2" of the plug-in protocol, and this relay version 1`},
		"other transport": {"netrpc", nil, sinks.ReasonConfig, "it doesn't speak gRPC"},
		"no certificate":  {"bare", nil, sinks.ReasonConfig, "set tls: false"},
		"no such socket":  {"bare", func(o *plugins.Options) { o.NoTLS = true }, sinks.ReasonConnection, "/tmp/nowhere"},
		"bad certificate": {"nobody", nil, sinks.ReasonConnection, "cert"},
		"not asked for":   {"insists", func(o *plugins.Options) { o.NoTLS = true }, sinks.ReasonConfig, "a certificate that nobody has asked for"},
		"silent":          {"silent", func(o *plugins.Options) { o.StartTimeout = 300 * time.Millisecond }, sinks.ReasonConnection, "no first line of the plug-in protocol within 300ms"},
		"ends at once":    {"ends", nil, sinks.ReasonConnection, "it has ended at once (exit status 3): there is no licence for [secret]"},
		"not there":       {"", func(o *plugins.Options) { o.Path = "./no/such/program" }, sinks.ReasonConfig, "./no/such/program can't be run"},
		"not in PATH":     {"", func(o *plugins.Options) { o.Path = "no-such-program" }, sinks.ReasonConfig, "executable file not found"},
		"no program":      {"", func(o *plugins.Options) { o.Path = "README.md" }, sinks.ReasonConfig, "is the path right, and the file executable?"},
		"checksum":        {"remote", func(o *plugins.Options) { o.SHA256 = strings.Repeat("0f", 32) }, sinks.ReasonConfig, "not the configured 0f0f"},
		"settings":        {"remote", nil, sinks.ReasonConfig, "setting url: is required"},
		"no directory":    {"remote", func(o *plugins.Options) { o.Directory = "/no/such/directory" }, sinks.ReasonConfig, "the setting directory names another place"},
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

// A system's directory for temporary files may have a long path, as on macOS, where it has
// 49 bytes. A socket's path is limited, and an error says so where the limit is exceeded.
func TestLongDirectoryForTheSocket(t *testing.T) {
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

// What runs is a copy of what was checked, and not what is put in its place.
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
		t.Errorf("%s runs, which isn't in %s", got, sink.Home())
	}
	check(t, os.WriteFile(o.Path, append(text, 0), 0o700))
	ask(t, sink, "exe")
	if got := sink.Send(t.Context(), orders("die"))[0]; got.Result != sinks.Retry {
		t.Errorf("outcome %+v", got)
	}
	if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "it was replaced") {
		t.Errorf("Open after the program was changed: %v", err)
	}
}

// A plug-in gets no variable that the operator hasn't set, and nothing else can
// see its socket.
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

// A plug-in that never comes to anything is not started for ever.
func TestCrashLoopEnds(t *testing.T) {
	t.Parallel()
	o := options(t, "ends")
	o.MaxCrashes, o.CrashPause = 2, time.Hour
	sink := newSink(t, o)
	for range 2 {
		if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "ended at once") {
			t.Errorf("Open: %v", err)
		}
	}
	err := sink.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "has ended 2 times in a row without delivering anything, and is not started again before") ||
		!strings.Contains(err.Error(), "there is no licence") {
		t.Errorf("Open: %v", err)
	}
	check(t, sink.Close(t.Context()))
}

// One that delivers between its deaths is of use, and is started each time.
func TestCrashesOfAUsefulPluginAreNoLoop(t *testing.T) {
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
	if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "not started again") {
		t.Errorf("Open after a death without use: %v", err)
	}
}

// running opens a sink and lets it be closed.
func running(t testing.TB, o plugins.Options) *plugins.Sink {
	t.Helper()
	sink := newSink(t, o)
	t.Cleanup(func() { check(t, sink.Close(context.Background())) })
	check(t, sink.Open(t.Context()))
	return sink
}

// ask lets a scripted plug-in do something and returns what it says.
func ask(t testing.TB, sink *plugins.Sink, order string) string {
	t.Helper()
	o := sink.Send(t.Context(), orders(order))[0]
	if o.Result != sinks.Delivered {
		t.Fatalf("told %q: %+v", order, o)
	}
	return o.Receipt
}

// orders are messages that tell a scripted plug-in what to do, without a key.
func orders(texts ...string) []sinks.Message {
	messages := batch(make([]string, len(texts))...)
	for i, text := range texts {
		messages[i].ID, messages[i].Payload = "order "+text, []byte(text)
	}
	return messages
}

// Where go-plugin's limit ended with ours, a silent plug-in was sometimes told
// as one that was killed.
func TestGoPluginsLimitIsLater(t *testing.T) {
	t.Parallel()
	if got := plugins.GoPluginLimit(plugins.Options{StartTimeout: time.Second}); got < time.Minute {
		t.Errorf("go-plugin gives up after %v, which may be before the relay does", got)
	}
}
