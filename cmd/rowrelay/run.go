package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/app"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const runHelp = `Relay messages until stopped, from all sources of a configuration, or from one
table to one sink. The sink is a URL:
%s
On the first SIGINT or SIGTERM the relays finish the batches that they are sending.
A second signal stops them immediately; messages that were being sent may be sent
again. On SIGHUP the relays reread the configuration file and the secrets that it
names. If these contain an error, the relays continue with the previous
configuration. Log settings change only at a restart.

The first relay of a table stores its --claim with the table. A relay with another
--claim can start only while no relay of the table is alive.

If live relays of the table have other sinks or routes, a new relay waits until they
have stopped. So a relay that is started for a trial takes no messages from them.
/readyz, rowrelay status and the log report that the new relay waits. With --join the
new relay doesn't wait, but shares the messages with the live relays. With --drain it
fails instead of waiting.`

// runFlags holds the flags of run and check.
type runFlags struct {
	program
	target target
	sink   string
	drain  bool
	join   bool
	limit  time.Duration // time limit of the drain; 0 for none
	topics []string
}

// setting is a flag that stands for a setting of the configuration.
type setting struct{ flag, name, help string }

var sourceSettings = []setting{
	{"claim", "claim", "claim messages by `lanes` (in order per key) or rows (competing consumers, no order) (default lanes)"},
	{"pick", "pick", "with --claim rows: take messages `oldest` first, newest first, or by priority (default oldest)"},
	{"name", "relay_name", "the relay's `name`: a relay with the name of a killed relay takes over its messages immediately (default a new name for each process)"},
	{"lease", "lease", "other relays take over the messages of a dead relay after this `duration`, from 1s to 1h (default 15s)"},
	{"poll", "poll", "poll for new messages at least this often, a `duration` from 1ms to 1m (default 200ms)"},
	{"listen", "listen", "`on`: notifications wake the relay (on " + databases.Notifying() + "); off: the relay only polls (default on)"},
	{"retention", "retention", "keep delivered messages for this `duration`; 0 keeps none (default 24h)"},
	{"drain-timeout", "drain_timeout", "when stopping, wait at most this `duration` for batches that are being sent (default 10s)"},
	{"longest-transaction", "longest_transaction", "on a database that doesn't show open transactions: messages of transactions up to this `duration` keep their order (default 1m)"},
}

var sinkSettings = []setting{
	{"batch", "batch", "send at most this `number` of messages in a batch (default 500)"},
	{"batch-bytes", "batch_bytes", "send at most this `size` of payload in a batch (default 4MiB)"},
	{"workers", "workers", "send up to this `number` of batches concurrently (default 2)"},
	{"buffer", "buffer", "keep at most this `number` of messages in memory (default eight batches per worker, four with --claim rows)"},
	{"timeout", "timeout", "allow the sink at most this `duration` for a batch (default 30s)"},
	{"max-attempts", "max_attempts", "park a message after this `number` of attempts, or unlimited (default 20)"},
}

func (p program) runCommand() *cobra.Command {
	r := &runFlags{program: p}
	var sinkURLs strings.Builder
	for _, kind := range p.kinds.Kinds() {
		if len(kind.Schemes) > 0 {
			fmt.Fprintf(&sinkURLs, "  %-16s %s\n", strings.Join(kind.Schemes, ":, ")+":", kind.Summary)
		}
	}
	command := &cobra.Command{
		Use:   "run",
		Short: "Relay messages to their sinks",
		Long:  fmt.Sprintf(runHelp, &sinkURLs),
		Args:  noArguments,
		RunE:  r.run,
	}
	configFlag(command, &r.target.config, "read sources, sinks and routes from this configuration `file`")
	r.target.addTableFlags(command)
	flags := command.Flags()
	flags.StringVar(&r.sink, "sink", "", "send the messages to this `URL` (see above)")
	flags.BoolVar(&r.drain, "drain", false, "exit when no message is due any more")
	flags.DurationVar(&r.limit, "drain-limit", 0, "with --drain: fail if the drain takes longer than this `duration`, for example because a sink is down (default no limit)")
	flags.BoolVar(&r.join, "join", false, "share the messages with live relays that have other sinks or routes, instead of waiting until these have stopped")
	for _, s := range append(sourceSettings, sinkSettings...) {
		flags.String(s.flag, "", s.help)
	}
	flags.StringSliceVar(&r.topics, "topics", nil, "with --claim rows, take only these `topics`, separated by commas")
	flags.String("admin", "", "serve the admin page, /metrics, /healthz, /readyz and /status at this `address`, such as 127.0.0.1:8321; $ROWRELAY_READER_TOKEN sets a token for reading; $ROWRELAY_OPERATOR_TOKEN sets a token for changes, which are disabled without it")
	flags.String("log-level", "", "log messages of this `level` and above: debug, info, warn or error (default info)")
	flags.String("log-format", "", "log as `text` or json (default text)")
	return command
}

var errDrainLimit = errors.New("the drain took longer than --drain-limit")

func (r *runFlags) run(command *cobra.Command, _ []string) error {
	if r.limit < 0 || r.limit > 0 && !r.drain {
		return usagef("--drain-limit needs --drain and a duration above zero")
	}
	c, err := r.configuration(command)
	if err != nil {
		return usage(err)
	}
	logger := app.NewLogger(c.Log, r.stderr)
	kinds, err := newKinds(r.stdout, logger)
	if err != nil {
		return err
	}
	tracer, flush, err := newTracer(command.Context(), logger)
	if err != nil {
		return usage(err)
	}
	defer flush()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	load := func() (config.Config, error) {
		if r.target.config == "" {
			return config.Config{}, errors.New("there is no configuration file to read again: the relay was started with flags")
		}
		return r.configuration(command)
	}
	daemon, err := app.New(c, app.Options{Open: r.openTable, OpenPage: openPage, Sinks: kinds, Build: build(), Drain: r.drain, Load: load, Reload: reload, Logger: logger, Tracer: tracer})
	if err != nil {
		return usage(err)
	}

	ctx := command.Context()
	if r.limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, r.limit, errDrainLimit)
		defer cancel()
		ctx = limited
	}
	hintsFor := config.Source{Table: config.DefaultTable} // with several sources, a hint names no table
	if len(c.Sources) == 1 {
		hintsFor = c.Sources[0]
	}
	err = explain(hintsFor, daemon.Run(ctx, r.abort))
	if context.Cause(ctx) == errDrainLimit {
		err = errors.Join(err, hinted(fmt.Errorf("the drain was not finished after %s and was stopped", r.limit),
			"rowrelay status counts the messages that are left; the log above shows the cause, such as a sink that is down"))
	}
	if context.Cause(command.Context()) == errOutputGone {
		err = errors.Join(err, errOutputGone)
	}
	return err
}

// configuration returns the configuration in the file or, without a file, the one that
// the flags describe. --join, --admin and the log flags apply to both.
func (r *runFlags) configuration(command *cobra.Command) (c config.Config, err error) {
	if r.target.config != "" {
		c, err = r.fromFile(command)
	} else {
		c, err = r.fromFlags(command)
	}
	if err != nil {
		return c, err
	}
	for i := range c.Sources {
		c.Sources[i].Join = c.Sources[i].Join || r.join
	}
	return c, errors.Join(
		set(command, setting{flag: "admin", name: "listen"}, c.Admin.Set),
		set(command, setting{flag: "log-level", name: "level"}, c.Log.Set),
		set(command, setting{flag: "log-format", name: "format"}, c.Log.Set),
	)
}

// fromFile reads the configuration file. It refuses flags for settings that belong in the
// file.
func (r *runFlags) fromFile(command *cobra.Command) (config.Config, error) {
	var given []string
	for _, s := range append(append([]setting{{flag: "database"}, {flag: "table"}, {flag: "sink"}, {flag: "topics"}},
		sourceSettings...), sinkSettings...) {
		if command.Flags().Changed(s.flag) {
			given = append(given, "--"+s.flag)
		}
	}
	if len(given) > 0 {
		return config.Config{}, fmt.Errorf("%s can't be given with --config: write it into %s", strings.Join(given, ", "), r.target.config)
	}
	return config.Load(r.target.config, r.kinds)
}

// fromFlags makes a configuration of one source and one sink.
func (r *runFlags) fromFlags(command *cobra.Command) (config.Config, error) {
	source, err := r.target.resolve(r.program, command)
	if err != nil {
		return config.Config{}, err
	}
	if r.sink == "" {
		return config.Config{}, errors.New("no sink: give --sink with a URL, such as https://example.org/messages or stdout:, or give --config")
	}
	sink := config.Sink{Name: "sink", URL: r.sink}
	var problems []error
	for _, s := range sourceSettings {
		problems = append(problems, set(command, s, source.Set))
	}
	for _, s := range sinkSettings {
		problems = append(problems, set(command, s, sink.Set))
	}
	if err := source.SetTopics(r.topics...); err != nil {
		problems = append(problems, fmt.Errorf("--topics: %w", err))
	}
	if source.Listen == config.On && source.Database.Polled() {
		problems = append(problems, errors.New("--listen can't be on: only "+databases.Notifying()+" has notifications; the relay polls"))
	}
	if source.Claim != storage.ByRows && (source.Pick != "" || len(source.Topics) > 0) {
		problems = append(problems, errors.New("--pick and --topics need --claim rows"))
	}
	if _, err := sink.Make(r.kinds); err != nil {
		problems = append(problems, fmt.Errorf("--sink: %w", err))
	}
	c := config.Config{Sources: []config.Source{source}, Sinks: []config.Sink{sink}}
	for variable, name := range map[string]string{"ROWRELAY_READER_TOKEN": "reader_token", "ROWRELAY_OPERATOR_TOKEN": "operator_token"} {
		if token := os.Getenv(variable); token != "" && command.Flags().Changed("admin") {
			if err := c.Admin.Set(name, token); err != nil {
				problems = append(problems, fmt.Errorf("$%s: %w", variable, err))
			}
		}
	}
	return c, errors.Join(problems...)
}

// set applies the flag's value to the setting that the flag stands for, if the flag was
// given.
func set(command *cobra.Command, s setting, to func(name, text string) error) error {
	if !command.Flags().Changed(s.flag) {
		return nil
	}
	if err := to(s.name, command.Flags().Lookup(s.flag).Value.String()); err != nil {
		return fmt.Errorf("--%s: %w", s.flag, err)
	}
	return nil
}

// openTable opens a source's table for the daemon. With --drain it makes no listener.
func (r *runFlags) openTable(ctx context.Context, source config.Source) (app.Table, error) {
	db, d, err := openDatabase(ctx, source.Database, pool{idle: relayIdleTime})
	if err != nil {
		return app.Table{}, err
	}
	store, err := openStore(ctx, source, db, d)
	if err != nil {
		return app.Table{}, errors.Join(explain(source, err), db.Close())
	}
	table := app.Table{Store: store, Close: db.Close}
	for _, finding := range store.Findings {
		if !finding.OK {
			table.Warnings = append(table.Warnings, finding.String())
		}
	}
	if !r.drain && source.Listen != config.Off && !source.Database.Polled() {
		if table.Listener, err = newListener(source); err != nil {
			return app.Table{}, errors.Join(err, db.Close())
		}
	}
	return table, nil
}
