package rowrelay_test

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// said is an io.Writer for a log. It sends each line to the channel.
type said chan string

func (s said) Write(line []byte) (int, error) {
	s <- string(line)
	return len(line), nil
}

// If a handler ignores its context, with or without a transaction, this is logged. Its message and the later messages of the
// key are delivered by another process, in order. A stop gives up after its time-outs.
func TestAHandlerThatHangsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes twenty seconds until a handler counts as stuck and a stop gives up")
	}
	for _, kind := range []string{"Handle", "HandleTx"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, log, release := newFile(t), make(said, 1000), make(chan struct{})
			options := rowrelay.Options{
				Handlers: relay.SinkOptions{Timeout: 3 * time.Second},
				Relay:    relay.Options{Lease: 5 * time.Second, DrainTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(log, nil))},
			}
			returned := make(chan struct{}, 10)
			hangs := newApp(t, db, options)
			handle(hangs, kind, func(context.Context, sinks.Message) error { <-release; returned <- struct{}{}; return nil })
			for n := range 3 {
				if err := hangs.Write(t.Context(), outbox.WithoutTransaction(db), outbox.Message{Topic: "a", Key: "k", Priority: int16(n)}); err != nil {
					t.Fatal(err)
				}
			}
			run := func(app *rowrelay.App) (stop func() error) {
				ctx, cancel := context.WithCancel(t.Context())
				ran := make(chan error, 1)
				go func() { ran <- app.Run(ctx) }()
				return func() error { cancel(); return <-ran }
			}
			stop := run(hangs)
			for line := range log {
				if strings.Contains(line, "appears to be stuck") {
					break
				}
			}
			if err := hangs.Healthy(); err == nil || !strings.Contains(err.Error(), "appears to be stuck") {
				t.Errorf("Healthy returned %v", err)
			}
			handled := make(chan sinks.Message, 10)
			options.Relay.Logger = slog.New(slog.DiscardHandler)
			well := newApp(t, db, options)
			handle(well, kind, func(_ context.Context, m sinks.Message) error { handled <- m; return nil })
			stopWell := run(well)
			for n := range 3 {
				if m := <-handled; m.Priority != int16(n) {
					t.Errorf("message %d was handled instead of message %d", m.Priority, n)
				}
			}
			if err := stopWell(); err != nil {
				t.Error(err)
			}
			if err := stop(); err == nil || !strings.Contains(err.Error(), "appears to be stuck") || !strings.Contains(err.Error(), "sent again") {
				t.Errorf("stop: %v", err)
			}
			close(release)
			<-returned
		})
	}
}

func handle(app *rowrelay.App, kind string, handler inproc.Handler) {
	if kind == "Handle" {
		app.Handle("a", handler)
		return
	}
	app.HandleTx("a", func(ctx context.Context, _ *sql.Tx, m sinks.Message) error { return handler(ctx, m) })
}
