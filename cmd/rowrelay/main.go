// Rowrelay moves messages from a table in an application's own database to
// wherever they belong. `rowrelay demo` shows it, `rowrelay help` tells how.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, abort := signals()
	p := program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, abort: abort}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// sameSignal is how soon a second signal still belongs to the first one, as
// when a supervisor signals the process and its group.
const sameSignal = 500 * time.Millisecond

// signals returns a context that the first SIGINT or SIGTERM ends, and a
// channel that the second closes. A third one kills the process, as if nobody
// listened. When the reader of the output has gone (SIGPIPE), that is a stop
// too: dying of it would leave everything claimed.
func signals() (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(context.Background())
	abort := make(chan struct{})
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	go func() {
		first := firstOf(received)
		at := time.Now()
		if first == syscall.SIGPIPE {
			cancel(errOutputGone)
		}
		cancel(nil)
		for again := range received {
			if again != syscall.SIGPIPE && time.Since(at) > sameSignal {
				break
			}
		}
		close(abort)
		signal.Stop(received)
	}()
	return ctx, abort
}

// firstOf waits for the first signal that means a stop. A SIGPIPE comes for
// every connection, too, that breaks while it is written to.
func firstOf(received <-chan os.Signal) os.Signal {
	for {
		if signal := <-received; signal != syscall.SIGPIPE || outputGone() {
			return signal
		}
	}
}

// errOutputGone ends a command whose output nobody reads any more.
var errOutputGone = errors.New("nobody reads the output any more")
