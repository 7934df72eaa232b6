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

const replayHelp = `Send delivered messages again, unless the retention has deleted them. Select them by
filters (which must all match), or with --all; --since and --until compare the time of
delivery. The messages go to the sinks that their topics are routed to now. With --to,
one copy of each goes to that sink, which must exist in the configuration of --config, or
without --config in a live relay.

A replay writes copies as new messages, in the order of the old ones, so each key's
order is kept. A copy has the message id of its original, and a header rowrelay-replayed
with the replay's name, so consumers that deduplicate by message id skip it. A copy
expires when its original does; if that time has passed, the copy doesn't expire.

A replay has a name: one that you give, of at most 23 lower-case letters, digits, dots,
hyphens and underscores, or else the time of its start. Each transaction that writes copies
also stores the replay's progress. If a replay is interrupted or killed, run the command with
only its name: it continues without omitting a message or copying one twice. --stop
stops a replay that runs elsewhere, until it is continued by name. rowrelay messages
replays lists all replays.

A replay hardly delays other messages: it writes --rate copies per second, and pauses while
too many of its copies are not delivered yet, so that at most two seconds' worth of copies
wait. It costs as much as new messages at the same rate, plus one scan of all delivered
messages.
The database's user needs the right to INSERT into the table and to change its settings.`

const replaysHelp = `List all replays and their progress. An unfinished replay is running, or can be
continued by its name. A finished replay stays in the list, as one small row of the
table's settings, so that its name is not used twice. You may delete that row.`

// replaying holds the flags of replay and replays, and the replay that runs.
type replaying struct {
	program
	target target
	json   bool

	replay       storage.Replay
	since, until string
	all          bool
	stop         string
	by, reason   string // recorded in the log of actions
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
	flags.StringArrayVar(&r.replay.IDs, "id", nil, "only the message with this `id`, of its row or of the message; may be repeated")
	topicFlag(command, &r.replay.Topic)
	flags.StringVar(&r.replay.Key, "key", "", "only messages of exactly this `key`")
	flags.StringVar(&r.replay.Sink, "sink", "", "only messages that have a separate row for this `sink`")
	flags.StringVar(&r.replay.To, "to", "", "send the messages to this `sink` instead of the sinks of their topics")
	flags.StringVar(&r.since, "since", "", "only messages delivered since this `time` or age, such as 2026-01-31T12:00:00Z or 2h")
	flags.StringVar(&r.until, "until", "", "only messages delivered before this `time` or age")
	flags.BoolVar(&r.all, "all", false, "select every delivered message")
	flags.IntVar(&r.replay.Rate, "rate", 100, "messages to send per second")
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

// selects reports whether filters were given.
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
		return errors.New("--stop can't be given with a name, filters or --all")
	case r.stop != "":
		return nil
	case r.all && r.selects():
		return errors.New("--all selects every delivered message: it can't be given with filters")
	case !named && !r.all && !r.selects():
		return errors.New("no messages are selected: give filters or --all, or the name of a replay to continue")
	case named && operate.CheckReplayName(r.replay.Name) != nil:
		return operate.CheckReplayName(r.replay.Name)
	case r.replay.To != "" && !r.all && !r.selects():
		return errors.New("--to is for a new replay: a replay that is continued keeps its sink")
	case r.replay.Rate < 1:
		return fmt.Errorf("--rate must be at least 1, not %d", r.replay.Rate)
	case len(r.replay.IDs) > operate.MostReplayIDs:
		return fmt.Errorf("--id can be given at most %d times", operate.MostReplayIDs)
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

// begin stores a new replay, or loads the one to continue.
func (r *replaying) begin(ctx context.Context, operator storage.Operator, newRate bool) (err error) {
	r.replay.Name = cmp.Or(r.replay.Name, operate.NameReplay(time.Now()))
	name := r.replay.Name
	r.replay, err = operate.BeginReplay(ctx, operator, r.replay, r.all || r.selects(), newRate)
	switch {
	case errors.Is(err, operate.ErrNoReplay):
		return usagef("replay %s doesn't exist: rowrelay messages replays lists the existing ones; give filters or --all for a new one", name)
	case errors.Is(err, operate.ErrReplayIsThere):
		return usagef("replay %s exists already: to continue it, give only its name; for a new replay, choose another name", name)
	}
	return err
}

// stopIt stops the replay that --stop names, whichever process runs it.
func (r *replaying) stopIt(ctx context.Context, operator storage.Operator) error {
	is, err := operate.StopReplay(ctx, operator, r.stop)
	if errors.Is(err, operate.ErrNoReplay) {
		return fmt.Errorf("replay %s doesn't exist: rowrelay messages replays lists the existing ones", r.stop)
	}
	if err != nil {
		return err
	}
	return r.print(shownReplay(is) + "\n")
}

// run writes copies until the replay is finished or stopped.
func (r *replaying) run(ctx context.Context, operator storage.Operator) error {
	progress, before := newProgress(r.stderr), r.replay.Written
	work := operate.Replaying{
		Replay: r.replay,
		Progress: func(is storage.Replay) {
			progress.update(int(is.Written-before), 0, func(rate float64) string { return fmt.Sprintf("%s, %.0f/s", shownReplay(is), rate) })
		},
		Waits: func(is storage.Replay) {
			progress.end()
			_, _ = fmt.Fprintf(r.stderr, "%s; waiting, because earlier copies are not delivered yet: see rowrelay status\n", shownReplay(is))
		},
	}
	err := work.Run(ctx, operator)
	r.replay = work.Replay
	progress.end()
	switch {
	case errors.Is(err, operate.ErrNoReplay):
		return fmt.Errorf("replay %s doesn't exist any more", r.replay.Name)
	case err != nil && ctx.Err() != nil:
		return stopped{fmt.Sprintf("%s; continue with: rowrelay messages replay %s", shownReplay(r.replay), r.replay.Name)}
	case err != nil:
		_, _ = fmt.Fprintf(r.stderr, "%s; continue with: rowrelay messages replay %s\n", shownReplay(r.replay), r.replay.Name)
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
