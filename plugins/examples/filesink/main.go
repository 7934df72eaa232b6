// Filesink is a plug-in that appends each message, as a line of JSON, to the file
// that its argument names:
//
//	go build -o filesink ./plugins/examples/filesink
//	rowrelay run --database URL --sink 'plugin:./filesink?arg=orders.jsonl'
package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
)

type sink struct{ path string }

func main() {
	if len(os.Args) != 2 {
		log.Fatal("the argument is missing: the path of the file")
	}
	plugins.Serve(sink{path: os.Args[1]})
}

func (s sink) Open(context.Context) error  { return s.append(nil) }
func (s sink) Close(context.Context) error { return nil }
func (s sink) Order() sinks.Order          { return sinks.OrderPrefix }

func (s sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))
	}
	var lines bytes.Buffer
	outcomes, _ := sinks.WriteLines(&lines, batch)
	if err := s.append(lines.Bytes()); err != nil {
		return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, err.Error()))
	}
	return outcomes
}

func (s sink) append(text []byte) error {
	file, err := os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}
