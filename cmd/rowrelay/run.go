package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/app"
	"github.com/rowrelay/rowrelay/relay/config"
)

const runHelp = `Relay messages until stopped: those of all sources of a configuration, or those
of one table to one sink. The sink is a URL:
%s
On the first SIGINT or SIGTERM the relays finish what is under way; the second
one cuts that short, and what was being sent may be sent again.

The way to claim is stored with the table by its first relay, and changes only
while none lives.`

// runFlags are what was typed.
type runFlags struct {
	program
	target target
	sink   string
	drain  bool
	topics []string
}

func (p program) runCommand() *cobra.Command {
	r := &runFlags{program: p}
	command := &cobra.Command{
		Use:   "run",
		Short: "Relay messages to their sinks",
		Long:  fmt.Sprintf(runHelp, p.sinkURLs()),
		Args:  noArguments,
		RunE:  r.run,
	}
	r.addFlags(command)
	return command
}

func (p program) sinkURLs() string {
	var lines strings.Builder
	for _, kind := range p.kinds.Kinds() {
		if len(kind.Schemes) > 0 {
			fmt.Fprintf(&lines, "  %-16s %s\n", strings.Join(kind.Schemes, ":, ")+":", kind.Summary)
		}
	}
	return lines.String()
}

// setting is a flag that stands for a setting of the configuration.
type setting struct{ flag, name, help string }

var sourceSettings = []setting{
	{"claim", "claim", "claim messages by `lanes` (in order per key) or rows (competing, no order) (default lanes)"},
	{"pick", "pick", "with --claim rows, take the `oldest`, newest or by priority first (default oldest)"},
	{"lease", "lease", "how long a relay that died holds its messages, a `duration` from 1s to 1h (default 15s)"},
	{"poll", "poll", "look for messages at least so often, a `duration` from 1ms to 1m (default 200ms)"},
	{"listen", "listen", "`on` wakes the relay by PostgreSQL's NOTIFY, off lets it poll only (default on)"},
	{"retention", "retention", "keep delivered messages for this `duration`, 0 for not at all (default 24h)"},
	{"drain-timeout", "drain_timeout", "when stopping, wait at most this `duration` for what is being sent (default 10s)"},
	{"longest-transaction", "longest_transaction", "on MySQL and MariaDB, without the right PROCESS: a message of a transaction within this `duration` keeps its order (default 1m)"},
}

var sinkSettings = []setting{
	{"batch", "batch", "send at most this `number` of messages at once (default 500)"},
	{"batch-bytes", "batch_bytes", "send at most this `size` of payload at once (default 4MiB)"},
	{"workers", "workers", "send this `number` of batches at the same time (default 2)"},
	{"buffer", "buffer", "hold at most this `number` of messages in memory (default four batches a worker)"},
	{"timeout", "timeout", "give the sink at most this `duration` for a batch (default 30s)"},
	{"max-attempts", "max_attempts", "park a message after this `number` of attempts, or unlimited (default 20)"},
}

func (r *runFlags) addFlags(command *cobra.Command) {
	r.target.addConfigFlag(command, "relay as this configuration `file` says")
	r.target.addTableFlags(command)
	flags := command.Flags()
	flags.StringVar(&r.sink, "sink", "", "where to, a `URL` as above")
	flags.BoolVar(&r.drain, "drain", false, "end when nothing is left to deliver now")
	for _, s := range append(sourceSettings, sinkSettings...) {
		flags.String(s.flag, "", s.help)
	}
	flags.StringSliceVar(&r.topics, "topics", nil, "with --claim rows, take only these `topics`, separated by commas")
	flags.String("admin", "", "serve /metrics, /healthz, /readyz and /status at this `address`, such as 127.0.0.1:8321")
	flags.String("log-level", "", "log from this `level` on: debug, info, warn or error (default info)")
	flags.String("log-format", "", "log as `text` or json (default text)")
}

func (r *runFlags) run(command *cobra.Command, _ []string) error {
	c, err := r.configuration(command)
	if err != nil {
		return usage(err)
	}
	logger := app.NewLogger(c.Log, r.stderr)
	kinds, err := newKinds(r.stdout, logger)
	if err != nil {
		return err
	}
	daemon, err := app.New(c, app.Options{Open: openTable, Sinks: kinds, Build: build(), Drain: r.drain, Logger: logger})
	if err != nil {
		return usage(err)
	}
	err = explain(onlySource(c), daemon.Run(command.Context(), r.abort))
	if context.Cause(command.Context()) == errOutputGone {
		err = errors.Join(err, errOutputGone)
	}
	return err
}

// onlySource is what a hint can be about.
func onlySource(c config.Config) config.Source {
	if len(c.Sources) == 1 {
		return c.Sources[0]
	}
	return config.Source{Table: config.DefaultTable}
}
