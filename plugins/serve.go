package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Serve runs a plug-in whose sink has no settings. It answers the calls of the relay
// that started the process, and returns when the relay ends the plug-in. Call it at the
// end of main.
//
// Until Serve is called, print nothing to the standard output, because the protocol
// uses it. Afterwards the relay logs what the process prints and what it logs with
// package slog or log. When the relay is gone, the process exits immediately.
//
// The protocol doesn't carry the additional methods of a [sinks.Deduplicating] or a
// [sinks.TxSink]. The relay refuses to open a deduplicating sink, and a transactional
// sink is always unavailable.
func Serve(sink sinks.Sink) {
	ServeKind(sinks.Kind{
		Name:    "sink",
		Summary: "A sink without settings.",
		New:     func(settings.Values) (sinks.Sink, error) { return sink, nil },
	})
}

// ServeKind is like [Serve], for a sink with settings. The kind describes the settings,
// and its New makes the sink from the values that the operator has set under "config"
// and "secrets". The kind needs no Schemes and no FromURL.
func ServeKind(kind sinks.Kind) {
	if os.Getenv(cookie.MagicCookieKey) != cookie.MagicCookieValue {
		fmt.Fprintf(os.Stderr, "This is a plug-in of rowrelay: only a relay can start it, for example\n\n    rowrelay plugin check %s\n", os.Args[0])
		os.Exit(1)
	}
	if kind.FromURL == nil {
		kind.Schemes = nil
	}
	if _, err := sinks.NewRegistry(kind); err != nil {
		fmt.Fprintln(os.Stderr, "serve the plug-in:", err)
		os.Exit(1)
	}
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	go exitWithTheRelay(os.Stdin)
	serve(kind)
}

// slack is the size in bytes of a slice that serve allocates and never writes to, so that it takes no physical
// memory. Go collects garbage when the heap has doubled, and this slice counts as heap. Without the slice,
// collections would be frequent, because a batch needs much memory compared with a plug-in's small heap. The slice
// has at most an eighth of the memory limit. GOGC and GOMEMLIMIT still apply.
const slack = 32 << 20

func serve(kind sinks.Kind) {
	defer runtime.KeepAlive(make([]byte, min(slack, debug.SetMemoryLimit(-1)/8)))
	server := newServer(kind, pluginVersion())
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  cookie,
		VersionedPlugins: versions(server),
		Logger:           hclog.NewNullLogger(),
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options,
				grpc.MaxRecvMsgSize(serverRequestBytes),
				grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes),
				grpc.ReadBufferSize(bufferBytes), grpc.WriteBufferSize(bufferBytes))...)
		},
	})
	_ = server.close(context.Background()) // does nothing if the relay has called Close
}

// exitWithTheRelay exits the process when the standard input ends. The kernel closes
// the relay's end of the pipe even when the relay is killed.
func exitWithTheRelay(stdin io.Reader) {
	_, err := io.Copy(io.Discard, stdin)
	if err == nil {
		err = errors.New("the standard input was closed")
	}
	slog.Debug("relay is gone, plug-in exits", "cause", err)
	os.Exit(1)
}

// version is the plug-in's version if the linker has set it: -ldflags "-X github.com/rowrelay/rowrelay/plugins.version=v1.2.3".
var version string

// pluginVersion returns the version that the linker has set. By default it is the version of the plug-in's main module.
func pluginVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}
