// Rowrelay delivers messages from a table in an application's own database to an
// HTTP endpoint, a file or a broker. Start with `rowrelay demo` and `rowrelay help`.
//
// Each command has a separate file with its flags, its work and its output, in this
// order. The commands share the code that selects the table (target.go), opens the
// database (database.go, drivers_*.go), lists the sinks (sinks.go), adds hints to errors
// (explain.go) and prints (output.go).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/app"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/sinks"
)

func main() {
	if code, ok := runAsInit(); ok {
		os.Exit(code)
	}
	ctx, abort := signals()
	p := program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, abort: abort, colours: wantsColours()}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // the command was tried and failed
	exitUsage  = 2 // a flag, a command or the configuration is wrong, so nothing was tried

	exitInterrupted = 130 // the code that shells report for SIGINT
)

// program is one invocation of the command, with the parts of the process that the
// command uses.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	abort          <-chan struct{} // closed by the second signal
	colours        bool            // coloured output to a terminal is permitted
	kinds          *sinks.Registry
	completionTime time.Duration // replaces the constant of this name in tests; 0: the constant is used
}

// run runs the command line and returns its exit code.
func (p program) run(ctx context.Context, args []string) int {
	out := &checkedWriter{to: p.stdout}
	p.stdout = out
	err := p.execute(ctx, args)
	unwritten := out.failed()
	if errors.Is(unwritten, syscall.EPIPE) && (err == nil || errors.As(err, new(stopped)) || errors.Is(err, unwritten)) {
		return exitDone // a reader such as head has read enough
	}
	if err == nil && unwritten != nil {
		err = fmt.Errorf("write the output: %w", unwritten)
	}
	if err == nil {
		return exitDone
	}
	_, _ = fmt.Fprintf(p.stderr, "rowrelay: %v\n", err) // if this fails, the error can't be printed anywhere
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	if errors.As(err, new(stopped)) {
		return exitInterrupted
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
		return stopped{}
	}
	return err
}

var rootHelp = `rowrelay delivers messages from a table in your own database to an HTTP endpoint,
a file or a broker. In one transaction, an application makes a change and writes the
message that describes it. A relay then delivers the message at least once, and
the messages of a key in order.

See it work:    rowrelay demo
Try it:         rowrelay migrate up --database ` + fileURL("app.db") + `
                echo '{"topic":"orders","payload":"hello"}' | rowrelay enqueue --database ` + fileURL("app.db") + `
                rowrelay run --database ` + fileURL("app.db") + ` --sink stdout: --drain

Databases are URLs:
` + urlExamples() + `Without --database the URL is taken from $ROWRELAY_DATABASE, which keeps its
password out of the list of processes.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted.`

func urlExamples() (lines string) {
	for _, form := range databases.URLs() {
		lines += "  " + form.Example + "\n"
	}
	return lines
}

func (p program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:               "rowrelay",
		Short:             "A transactional outbox relay",
		Long:              rootHelp,
		Args:              cobra.ArbitraryArgs,
		RunE:              onlyCommands,
		Version:           versionLine(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().Bool("version", false, "print the version") // cobra would add the shorthand -v, which often means verbose
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return usagef("%w: see %s --help", err, command.CommandPath())
	})
	root.AddCommand(
		p.migrateCommand(), p.adoptCommand(), p.enqueueCommand(), p.runCommand(), p.statusCommand(), p.tailCommand(),
		p.messagesCommand(), p.pauseCommand(), p.resumeCommand(), p.limitCommand(), p.unlimitCommand(), p.actionsCommand(), p.checkCommand(), p.healthcheckCommand(), p.pluginCommand(), p.demoCommand(), p.versionCommand(),
	)
	p.completeValues(root)
	return root
}

// usageError is a mistake in the command line or in the configuration. The
// command exits with exitUsage.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage makes an error of the configuration a usageError. If the only problems are commands that should print secrets but
// failed, it returns the error unchanged, because a restart may help.
func usage(err error) error {
	var problems *config.Problems
	if err == nil || errors.As(err, new(usageError)) || errors.As(err, &problems) && problems.MayPass() {
		return err
	}
	return usageError{err}
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// noArguments is like cobra.NoArgs, but its error doesn't repeat the arguments, because
// an argument may be a URL with a password.
func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, only flags: see %[1]s --help", command.CommandPath())
	}
	return nil
}

// group returns a command that has only sub-commands.
func group(use, short string, of ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: onlyCommands}
	command.AddCommand(of...)
	return command
}

// onlyCommands is the action of a command that has only sub-commands. It always
// returns an error.
func onlyCommands(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		command.SuggestionsMinimumDistance = 2
		meant := ""
		if near := command.SuggestionsFor(args[0]); len(near) > 0 {
			meant = ", did you mean " + strings.Join(near, " or ") + "?"
		}
		return usagef("%s has no command %q%s; see %[1]s --help", command.CommandPath(), args[0], meant)
	}
	_, _ = fmt.Fprint(command.ErrOrStderr(), command.UsageString())
	return usagef("%s needs a command", command.CommandPath())
}

// sameSignal is the time after the first signal in which other signals are ignored: a
// supervisor may signal both the process and its group.
const sameSignal = 500 * time.Millisecond

// signals returns a context and a channel. The first SIGINT or SIGTERM cancels the
// context, the second closes the channel, and a third kills the process. A SIGPIPE also
// cancels the context if the output has lost its reader. A SIGPIPE must not kill the process,
// because the messages that the process has claimed would stay claimed.
func signals() (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(context.Background())
	abort := make(chan struct{})
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	go func() {
		first := <-received
		for first == syscall.SIGPIPE && !outputGone() {
			first = <-received // a write to a broken network connection also raises SIGPIPE
		}
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

// errOutputGone stops a command whose output has lost its reader.
var errOutputGone = errors.New("the output has no reader any more")
