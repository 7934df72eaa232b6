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

// Serve makes a plug-in of a sink that has no settings: it answers the relay
// that has started the process, and returns when the relay is done with it. Call
// it in main, and nothing after it.
//
// The process's standard output belongs to the protocol until Serve has taken
// over, so nothing may be printed before. Afterwards what is printed, and what
// is logged with package slog or log, appears in the relay's log. When the relay
// is gone the process exits, whatever it is doing.
//
// What a [sinks.Deduplicating] or a [sinks.TxSink] has beyond a Sink doesn't cross to
// another process: a deduplicating sink is refused when the relay opens it, and that of
// the other kind is never available.
func Serve(sink sinks.Sink) {
	ServeKind(sinks.Kind{
		Name:    "sink",
		Summary: "A sink without settings.",
		New:     func(settings.Values) (sinks.Sink, error) { return sink, nil },
	})
}

// ServeKind is [Serve] for a sink with settings: the kind says what can be set,
// and its New makes the sink of what the operator has set under "config" and
// "secrets". Schemes and FromURL are not needed.
func ServeKind(kind sinks.Kind) {
	if os.Getenv(cookie.MagicCookieKey) != cookie.MagicCookieValue {
		fmt.Fprintf(os.Stderr, "This is a plug-in of rowrelay: let a relay start it, as with\n\n    rowrelay plugin check %s\n", os.Args[0])
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

// slack is how much more garbage than by itself a plug-in collects at once, or an
// eighth of what memory it may have at most: its heap is small, and a batch makes
// a good part of it anew. The memory is asked for and never touched, so that the
// system doesn't give it. What GOGC and GOMEMLIMIT say holds all the same.
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
	_ = server.close(context.Background()) // only where the relay hasn't asked for it
}

// exitWithTheRelay ends the process when the relay's end of the standard input
// is closed, which happens also when the relay is killed.
func exitWithTheRelay(stdin io.Reader) {
	_, err := io.Copy(io.Discard, stdin)
	if err == nil {
		err = errors.New("its end of the standard input is closed")
	}
	slog.Debug("the relay is gone, the plug-in exits", "cause", err)
	os.Exit(1)
}

// pluginVersion is that of the plug-in's own module.
func pluginVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Version
}
