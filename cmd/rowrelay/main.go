// Rowrelay moves messages from a table in an application's own database to
// wherever they belong. `rowrelay demo` shows it, `rowrelay help` tells how.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, abort := signals()
	p := program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, abort: abort}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// signals returns a context that the first SIGINT or SIGTERM ends, and a
// channel that the second closes. A third one kills the process, as if nobody
// listened.
func signals() (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	abort := make(chan struct{})
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-received
		cancel()
		<-received
		close(abort)
		signal.Stop(received)
	}()
	return ctx, abort
}
