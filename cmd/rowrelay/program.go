package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/app"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/sinks"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // it was tried, and didn't work
	exitUsage  = 2 // it wasn't tried: a flag, a command or the configuration is wrong
)

// program is one call of the command, with everything that it may touch of the
// process.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	abort          <-chan struct{} // closed by the second signal
	kinds          *sinks.Registry
}

// run runs the command line and returns its exit code.
func (p program) run(ctx context.Context, args []string) int {
	out := &checkedWriter{to: p.stdout}
	p.stdout = out
	err := p.execute(ctx, args)
	if err == nil && out.err != nil {
		err = fmt.Errorf("write the output: %w", out.err)
	}
	if err == nil {
		return exitDone
	}
	_, _ = fmt.Fprintf(p.stderr, "rowrelay: %v\n", err) // nobody is left to tell
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

func (p program) execute(ctx context.Context, args []string) error {
	kinds, err := newKinds(p.stdout, app.NewLogger(config.Log{Level: slog.LevelWarn}, p.stderr))
	if err != nil {
		return err
	}
	p.kinds = kinds
	root := p.rootCommand()
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}

// checkedWriter remembers that the output couldn't be written: a report that
// was cut short must not look like a whole one.
type checkedWriter struct {
	mu  sync.Mutex
	to  io.Writer
	err error
}

func (w *checkedWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.to.Write(text)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// usageError is an error of whoever typed the command or wrote the
// configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error {
	if err == nil || errors.As(err, new(usageError)) {
		return err
	}
	return usageError{err}
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// noArguments is cobra.NoArgs, but doesn't repeat what was typed: it may be a
// URL with a password.
func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, only flags: see %[1]s --help", command.CommandPath())
	}
	return nil
}

// onlyCommands is the action of a command that has only sub-commands.
func onlyCommands(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s has no command %q%s; see %[1]s --help", command.CommandPath(), args[0], meant(command, args[0]))
	}
	_, _ = fmt.Fprint(command.ErrOrStderr(), command.UsageString())
	return usagef("%s needs a command", command.CommandPath())
}

// meant suggests the command that was probably meant.
func meant(command *cobra.Command, typed string) string {
	command.SuggestionsMinimumDistance = 2
	if near := command.SuggestionsFor(typed); len(near) > 0 {
		return ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}
