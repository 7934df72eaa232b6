package main

import (
	"io"
	"log/slog"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/file"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
	"github.com/rowrelay/rowrelay/sinks/settings"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

// newKinds returns the kinds of sinks that this program was built with. Plug-ins log
// to the logger.
func newKinds(out io.Writer, logger *slog.Logger) (*sinks.Registry, error) {
	return sinks.NewRegistry(
		discard.Kind(),
		file.Kind(),
		httpsink.Kind(),
		kafka.Kind(),
		plugins.Kind(logger),
		rabbitmq.Kind(),
		stdoutTo(out),
	)
}

// stdoutTo returns the kind of the stdout sink. Sinks of this kind write to the
// argument out.
func stdoutTo(out io.Writer) sinks.Kind {
	kind := stdout.Kind()
	kind.New = func(settings.Values) (sinks.Sink, error) {
		return stdout.New(stdout.Options{Writer: out}), nil
	}
	return kind
}
