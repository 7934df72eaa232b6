package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const tailHelp = `Print messages as they are delivered, until the command is interrupted. Each line has
the time of delivery, the id of the row, the topic, the key, the time from writing to
delivery, the number of failed attempts, the sinks (if the row is for only some of the
topic's sinks), and the message's id.

The command queries the table once a second for the messages that were delivered last.
The query uses an index and reads at most --limit rows, so its cost doesn't depend on the
size of the table. If more than --limit messages were delivered since the last query, a
line on stderr reports the gap. The command prints only messages that the relay keeps:
with a retention of 0, it prints nothing.`

// following holds the flags and the state of tail.
type following struct {
	program
	target target
	filter storage.Filter
	since  string
	every  time.Duration
	json   bool

	from time.Time             // rows that were delivered at this time or later are queried
	seen map[seenRow]time.Time // the printed rows that were delivered at f.from or later, with their times of delivery
}

// seenRow is a row that was printed. A message may have one row for each of its sinks.
type seenRow struct {
	id    int64
	sinks string
}

func (p program) tailCommand() *cobra.Command {
	f := &following{program: p, seen: map[seenRow]time.Time{}}
	command := &cobra.Command{
		Use: "tail", Short: "Show messages as they are delivered", Long: tailHelp, Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			switch {
			case f.filter.Limit < 1 || f.filter.Limit > 10_000:
				return usagef("--limit: %d isn't between 1 and 10000", f.filter.Limit)
			case f.every < 100*time.Millisecond:
				return usagef("--interval must be at least 100ms, not %v", f.every)
			}
			if f.from, err = operate.Moment("--since", f.since); err != nil {
				return usage(err)
			}
			return f.target.operate(p, command, func(ctx context.Context, operator storage.Operator) error {
				follower, ok := operator.(storage.Follower)
				if !ok {
					return errors.ErrUnsupported
				}
				return f.run(ctx, follower)
			})
		},
	}
	f.target.addFlags(command)
	flags := command.Flags()
	topicFlag(command, &f.filter.Topic)
	flags.StringVar(&f.filter.Key, "key", "", "only messages of exactly this `key`")
	flags.StringVar(&f.filter.Sink, "sink", "", "only messages that have a separate row for this `sink`")
	flags.StringVar(&f.since, "since", "10m", "start with messages delivered since this `time` or age, such as 2026-01-31T12:00:00Z or 2h")
	flags.IntVar(&f.filter.Limit, "limit", 200, "read at most this `number` of messages in a query")
	flags.DurationVar(&f.every, "interval", time.Second, "the `duration` from one query to the next")
	flags.BoolVar(&f.json, "json", false, "print JSON, one line for each message")
	return command
}

func (f *following) run(ctx context.Context, follower storage.Follower) error {
	troubled := false
	for first := true; ; first = false {
		found, err := follower.LastDelivered(ctx, f.filter, f.from)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil && !troubled:
			_, _ = fmt.Fprintf(f.stderr, "%s; continuing once the database answers\n", printable(err.Error()))
		}
		if troubled = err != nil; !troubled {
			if err := f.show(found, first); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.every):
		}
	}
}

// overlap is how far each query reaches back before the last delivery that was printed. A row may become
// visible late, because its time of delivery is set before its transaction commits.
const overlap = 5 * time.Second

// show prints the rows that haven't been printed, the oldest first.
func (f *following) show(found []storage.Info, first bool) error {
	if len(found) == 0 {
		return nil
	}
	oldest := found[len(found)-1]
	if _, shown := f.seen[seenRow{oldest.ID, oldest.Sinks}]; len(found) == f.filter.Limit && !shown && !first {
		_, _ = fmt.Fprintln(f.stderr, "… some messages are missing here: more than --limit were delivered since the last query")
	}
	for i := len(found) - 1; i >= 0; i-- {
		info := found[i]
		row := seenRow{info.ID, info.Sinks}
		if _, shown := f.seen[row]; shown {
			continue
		}
		f.seen[row] = info.FinishedAt
		if err := f.printOne(info); err != nil {
			return err
		}
	}
	if from := found[0].FinishedAt.Add(-overlap); from.After(f.from) {
		f.from = from
		for row, at := range f.seen {
			if at.Before(from) {
				delete(f.seen, row)
			}
		}
	}
	return nil
}

func (f *following) printOne(info storage.Info) error {
	if f.json {
		encoder := json.NewEncoder(f.stdout)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(operate.NewMessage(info))
	}
	took := "after " + elapsed(max(0, info.FinishedAt.Sub(info.CreatedAt)))
	if info.Attempts > 0 {
		took = fmt.Sprintf("%s, %d failed", took, info.Attempts)
	}
	line := printable(fmt.Sprintf("%s  %10d  %-24s  %-20s  %s", info.FinishedAt.UTC().Format("15:04:05.000"), info.ID, cell(info.Message.Topic, 40), cell(info.Message.Key, 40), took))
	if info.Sinks != "" {
		line += "  to " + printable(info.Sinks)
	}
	line += "  " + info.Message.ID
	if columns := columns(f.stdout); columns > 0 && len(line) > columns {
		runes := []rune(line)
		line = string(runes[:min(len(runes), columns)])
	}
	return f.print(line + "\n")
}
