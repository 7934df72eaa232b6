package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const replayHelp = `Send delivered messages again, as far as the retention has them still: those that
all of the given filters select, or with --all every one that was delivered before
now. --since and --until are about the time of delivery. They go where their topics
are routed now, or to the sink that --to names, which the configuration of --config
must have, or without it a living relay: there one copy of each message.

They are written as new messages in the order of the old ones, and so each key's in
their order, with their message ids and with a header rowrelay-replayed that has the
replay's name: consumers that know messages by their ids pass over them. They expire
when their messages do, unless that has passed.

A replay has a name: yours, of at most 23 small letters, digits, dots, hyphens and
underscores, or a time. What it has done is stored with what it writes:
interrupted or killed, it goes on where it was when asked for by its name alone, and
leaves none out and writes none twice. --stop ends one from elsewhere, until it is
asked for again; rowrelay messages replays lists all.

It goes beside the traffic: at a rate, and it waits while its earlier copies are still
to be delivered, of which there are never more than for two seconds. It costs what the
traffic of its rate costs, and one look through all delivered messages.
The user needs the right to INSERT into the table and to change its settings.`

const replaysHelp = `List the replays that were begun, with how far they are. Those that neither have
finished nor were stopped go on, or wait to be asked for again. A replay stays in the
list once it is finished: one small row of the table's settings, whose name no other
replay can have. Nothing else needs it, and it may be deleted there.`

// replaying is a replay at work.
type replaying struct {
	program
	target target
	json   bool

	replay       storage.Replay
	since, until string
	all          bool
	stop         string
	by, reason   string // for the log
}

func (p program) replayCommand() *cobra.Command {
	r := &replaying{program: p}
	command := &cobra.Command{
		Use: "replay [NAME]", Short: "Send delivered messages again", Long: replayHelp, Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := r.read(args); err != nil {
				return usage(err)
			}
			if err := r.target.checkSink(r.program, r.replay.To); err != nil {
				return err
			}
			return r.target.operate(r.program, command, func(ctx context.Context, operator storage.Operator) error {
				if r.stop != "" {
					return r.stopIt(ctx, operator)
				}
				if err := r.target.checkLivingSink(command.Context(), operator, r.replay.To); err != nil {
					return err
				}
				if err := r.begin(ctx, operator, command.Flags().Changed("rate")); err != nil {
					return err
				}
				return r.run(ctx, storage.Logged(operator, r.by, r.reason, "replay "+r.replay.Name))
			})
		},
	}
	r.target.addFlags(command)
	flags := command.Flags()
	flags.StringArrayVar(&r.replay.IDs, "id", nil, "only the message with this `id`, the table's or the message's; may be repeated")
	flags.StringVar(&r.replay.Topic, "topic", "", "only messages of exactly this `topic`")
	flags.StringVar(&r.replay.Key, "key", "", "only messages of exactly this `key`")
	flags.StringVar(&r.replay.Sink, "sink", "", "only messages that name this `sink`, as those do that had several to go to")
	flags.StringVar(&r.replay.To, "to", "", "send them to this `sink`, and not where they went")
	flags.StringVar(&r.since, "since", "", "only messages delivered at or after this `time`, or so long ago: 2026-01-31T12:00:00Z or 2h")
	flags.StringVar(&r.until, "until", "", "only messages delivered before this `time`, or so long ago")
	flags.BoolVar(&r.all, "all", false, "every delivered message")
	flags.IntVar(&r.replay.Rate, "rate", 100, "send so many messages a second")
	flags.StringVar(&r.stop, "stop", "", "stop the replay with this `name`")
	author(command, &r.by, &r.reason)
	return command
}

func (p program) replaysCommand() *cobra.Command {
	r := &replaying{program: p}
	command := &cobra.Command{
		Use: "replays", Short: "List the replays", Long: replaysHelp, Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return r.target.operate(p, command, r.list) },
	}
	r.target.addFlags(command)
	jsonFlag(command, &r.json)
	return command
}

// selects says that there are filters.
func (r *replaying) selects() bool {
	return r.replay.Topic+r.replay.Key+r.replay.Sink+r.since+r.until != "" || len(r.replay.IDs) > 0
}

func (r *replaying) read(args []string) (err error) {
	if len(args) > 0 {
		r.replay.Name = args[0]
	}
	named := r.replay.Name != ""
	switch {
	case r.stop != "" && (named || r.selects() || r.all):
		return errors.New("--stop goes with nothing else")
	case r.stop != "":
		return nil
	case r.all && r.selects():
		return errors.New("--all is every delivered message: it can't be given with filters")
	case !named && !r.all && !r.selects():
		return errors.New("say which messages: by filters, or --all for every delivered one; or the name of a replay that is to go on")
	case named && operate.CheckReplayName(r.replay.Name) != nil:
		return operate.CheckReplayName(r.replay.Name)
	case r.replay.To != "" && !r.all && !r.selects():
		return errors.New("--to is for a new replay: one that goes on keeps to what it was")
	case r.replay.Rate < 1:
		return fmt.Errorf("--rate must be at least 1, not %d", r.replay.Rate)
	case len(r.replay.IDs) > operate.MostReplayIDs:
		return fmt.Errorf("at most %d messages can be named by --id", operate.MostReplayIDs)
	}
	if r.replay.IDs, err = operate.IDs(r.replay.IDs); err != nil {
		return err
	}
	if r.replay.Since, err = operate.Moment("--since", r.since); err != nil {
		return err
	}
	r.replay.Until, err = operate.Moment("--until", r.until)
	return err
}

// begin stores a new replay, or has an old one go on.
func (r *replaying) begin(ctx context.Context, operator storage.Operator, newRate bool) (err error) {
	r.replay.Name = cmp.Or(r.replay.Name, operate.NameReplay(time.Now()))
	name := r.replay.Name
	r.replay, err = operate.BeginReplay(ctx, operator, r.replay, r.all || r.selects(), newRate)
	switch {
	case errors.Is(err, operate.ErrNoReplay):
		return usagef("there is no replay %s: rowrelay messages replays lists them; a new one needs filters, or --all", name)
	case errors.Is(err, operate.ErrReplayIsThere):
		return usagef("there is a replay %s already: without filters it goes on; a new one needs another name", name)
	}
	return err
}

// stopIt has the replay end wherever it is carried out.
func (r *replaying) stopIt(ctx context.Context, operator storage.Operator) error {
	is, err := operate.StopReplay(ctx, operator, r.stop)
	if errors.Is(err, operate.ErrNoReplay) {
		return fmt.Errorf("there is no replay %s: rowrelay messages replays lists them", r.stop)
	}
	if err != nil {
		return err
	}
	return r.print(shownReplay(is) + "\n")
}

// run writes copies until there are no more.
func (r *replaying) run(ctx context.Context, operator storage.Operator) error {
	progress, before := newProgress(r.stderr), r.replay.Written
	work := operate.Replaying{
		Replay: r.replay,
		Progress: func(is storage.Replay) {
			progress.tell(int(is.Written-before), 0, func(rate float64) string { return fmt.Sprintf("%s, %.0f a second", shownReplay(is), rate) })
		},
		Waits: func(is storage.Replay) {
			progress.end()
			_, _ = fmt.Fprintf(r.stderr, "%s; it waits, as earlier copies aren't delivered: see rowrelay status\n", shownReplay(is))
		},
	}
	err := work.Run(ctx, operator)
	r.replay = work.Replay
	progress.end()
	switch {
	case errors.Is(err, operate.ErrNoReplay):
		return fmt.Errorf("the replay %s isn't there any more", r.replay.Name)
	case err != nil && ctx.Err() != nil:
		return stopped{fmt.Sprintf("%s; it goes on with: rowrelay messages replay %s", shownReplay(r.replay), r.replay.Name)}
	case err != nil:
		_, _ = fmt.Fprintf(r.stderr, "%s; it goes on with: rowrelay messages replay %s\n", shownReplay(r.replay), r.replay.Name)
		return err
	}
	return r.print(shownReplay(r.replay) + "\n")
}

func shownReplay(replay storage.Replay) string {
	refused := ""
	if replay.Refused > 0 {
		refused = fmt.Sprintf("%d refused by the table's constraints, ", replay.Refused)
	}
	return fmt.Sprintf("replay %s: %d written, %sup to id %d of %d, %s", replay.Name, replay.Written, refused, replay.AfterID, replay.UntilID, operate.ReplayState(replay))
}

// replayJSON is a replay as JSON.
type replayJSON struct {
	Name  string `json:"name"`
	State string `json:"state"`
	storage.Replay
}

func (r *replaying) list(ctx context.Context, operator storage.Operator) error {
	known, err := operator.Replays(ctx)
	if err != nil {
		return err
	}
	if r.json {
		shown := []replayJSON{}
		for _, replay := range known {
			shown = append(shown, replayJSON{replay.Name, operate.ReplayState(replay), replay})
		}
		return r.printJSON(shown)
	}
	rows := [][]string{{"NAME", "STATE", "WRITTEN", "UP TO ID", "OF", "RATE", "TOPIC", "KEY", "SINK", "TO", "DELIVERED SINCE", "UNTIL"}}
	for _, replay := range known {
		rows = append(rows, []string{replay.Name, operate.ReplayState(replay), fmt.Sprint(replay.Written), fmt.Sprint(replay.AfterID), fmt.Sprint(replay.UntilID),
			fmt.Sprint(replay.Rate), cell(replay.Topic, 40), cell(replay.Key, 40), cell(replay.Sink, 40), cell(replay.To, 40), shownTime(replay.Since), shownTime(replay.Until)})
	}
	return r.printTable(rows)
}
