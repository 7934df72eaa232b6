package main

import (
	"io"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/file"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

// newKinds are the sinks that this program was built with.
func newKinds(out io.Writer) (*sinks.Registry, error) {
	return sinks.NewRegistry(
		discard.Kind(),
		file.Kind(),
		httpsink.Kind(),
		kafka.Kind(),
		rabbitmq.Kind(),
		stdoutTo(out),
	)
}

// stdoutTo is the stdout sink, writing to what the command was given as such.
func stdoutTo(out io.Writer) sinks.Kind {
	kind := stdout.Kind()
	kind.New = func(sinks.Settings) (sinks.Sink, error) {
		return stdout.New(stdout.Options{Writer: out}), nil
	}
	return kind
}
