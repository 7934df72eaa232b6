package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

const pauseHelp = `Pause sending in all relays of a table, until rowrelay resume or a given time. Relays
apply a pause within a second. A pause is stored with the table, so it survives restarts.
rowrelay status lists pauses, and rowrelay actions shows who made them. Relays finish the
batches that they are already sending. A pause doesn't count as an attempt and loses no
message. Everything that isn't paused is still sent.

  sink NAME   no message is sent to this sink
  topic NAME  no message of this topic is sent, and no later message with the same key
  key KEY     no message with this key is sent, of any topic, to any sink (with --claim
              lanes only)
  relay NAME  this relay leaves its messages to the other relays, if any is alive`

const resumeHelp = `End a pause. All relays of the table send again within a second.`

const limitHelp = `Limit how many messages per second all relays of a table together send to a sink. The
limit is divided equally among the live relays. A relay that starts is counted within
two seconds.`

const actionsHelp = `List the actions of operators, newest first: pause, resume, limit, unlimit, requeue,
redirect, skip, discard and replay. An action without a count is in progress or was
aborted.`

// steering holds the flags of pause, resume, limit and unlimit.
type steering struct {
	program
	target      target
	by, reason  string
	until, last string
}

// author adds the flags --by and --reason, whose values are written to the log of actions.
func author(command *cobra.Command, by, reason *string) {
	name, host := "", ""
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	host, _ = os.Hostname()
	command.Flags().StringVar(by, "by", "", "your name for the log of actions (default `user@host`)")
	command.Flags().StringVar(reason, "reason", "", "a reason for the log of actions, any `text`")
	before := command.PreRunE
	command.PreRunE = func(command *cobra.Command, args []string) error {
		if *by == "" {
			*by = strings.Trim(name+"@"+host, "@")
		}
		if len(*by) > 255 || len(*reason) > 255 {
			return usagef("--by and --reason must have at most 255 bytes each")
		}
		if before != nil {
			return before(command, args)
		}
		return nil
	}
}

// pausable are the kinds of pauses.
var pausable = []storage.ControlKind{storage.PauseSink, storage.PauseTopic, storage.PauseKey, storage.PauseRelay}

// paused reads a pause from the arguments.
func paused(command *cobra.Command, args []string) (c storage.Control, err error) {
	if len(args) == 2 && args[1] != "" && slices.Contains(pausable, storage.ControlKind(args[0])) {
		return storage.Control{Kind: storage.ControlKind(args[0]), Name: args[1]}, nil
	}
	return c, usagef("wrong arguments: use %s with sink NAME, topic NAME, key KEY or relay NAME", command.CommandPath())
}

// command makes one of the commands pause, resume, limit and unlimit. It calls the function
// read to make a pause or a limit from the arguments, and passes it to the function work.
func (s *steering) command(use, short, long string, read func(*cobra.Command, []string) (storage.Control, error), work func(context.Context, storage.Operator, storage.Control) error) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			control, err := read(command, args)
			if err != nil {
				return err
			}
			control.By, control.Reason = s.by, s.reason
			if err := control.Validate(); err != nil {
				return usage(err)
			}
			return s.target.operate(s.program, command, func(ctx context.Context, operator storage.Operator) error {
				return work(ctx, operator, control)
			})
		},
	}
	s.target.addFlags(command)
	author(command, &s.by, &s.reason)
	return command
}

// lasting adds the flags --until and --for.
func (s *steering) lasting(command *cobra.Command) {
	command.Flags().StringVar(&s.until, "until", "", "end at this `time`: 14:00 (the next one, by this machine's clock) or 2026-01-31T14:00:00Z")
	command.Flags().StringVar(&s.last, "for", "", "end after this `duration`, such as 90m or 2d")
}

// lasts returns the duration from now that --until or --for gives, or 0 if neither was given.
func (s *steering) lasts(now time.Time) (time.Duration, error) {
	switch {
	case s.until != "" && s.last != "":
		return 0, usagef("give --until or --for, not both")
	case s.last != "":
		lasts, err := settings.Field{Type: settings.TypeDuration, Min: "1s", Max: "3650d"}.Parse(s.last)
		if err != nil {
			return 0, usagef("--for: %q isn't a duration of a second or more, such as 90m or 2d", s.last)
		}
		return lasts.(time.Duration), nil
	case s.until == "":
		return 0, nil
	}
	until, err := time.Parse(time.RFC3339, s.until)
	if clock, clockErr := time.Parse("15:04", s.until); clockErr == nil {
		until, err = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location()), nil
		if !until.After(now) {
			until = until.AddDate(0, 0, 1)
		}
	}
	if err != nil || !until.After(now) {
		return 0, usagef("--until: %q isn't a future time, such as 14:00 or 2026-01-31T14:00:00Z", s.until)
	}
	return until.Sub(now), nil
}

// setCommand makes a command that sets a pause or a limit.
func (s *steering) setCommand(use, short, long, done string, read func(*cobra.Command, []string) (storage.Control, error)) *cobra.Command {
	var lasts time.Duration
	withTime := func(command *cobra.Command, args []string) (c storage.Control, err error) {
		if lasts, err = s.lasts(time.Now()); err != nil {
			return c, err
		}
		return read(command, args)
	}
	command := s.command(use, short, long, withTime, func(ctx context.Context, operator storage.Operator, c storage.Control) error {
		if err := operate.SetControl(ctx, operator, c, lasts); err != nil {
			if errors.Is(err, operate.ErrNoKeys) || errors.Is(err, operate.ErrUnknown) || errors.Is(err, operate.ErrWildcard) {
				return usage(err)
			}
			return err
		}
		return s.print(done + " " + printable(c.Set(lasts).Target) + "\n")
	})
	s.lasting(command)
	return command
}

// liftCommand makes a command that ends a pause or a limit.
func (s *steering) liftCommand(use, short, long, done string, read func(*cobra.Command, []string) (storage.Control, error)) *cobra.Command {
	return s.command(use, short, long, read, func(ctx context.Context, operator storage.Operator, c storage.Control) error {
		was, err := operator.LiftControl(ctx, c)
		if err != nil {
			return err
		}
		if !was {
			return fmt.Errorf("%s was not %s: rowrelay status lists pauses and limits", c.Lifted().Target, map[bool]string{true: "limited", false: "paused"}[c.Kind == storage.LimitSink])
		}
		return s.print(done + " " + printable(c.Lifted().Target) + "\n")
	})
}

func (p program) pauseCommand() *cobra.Command {
	s := &steering{program: p}
	return s.setCommand("pause sink|topic|key|relay NAME", "Pause a sink, a topic, a key or a relay", pauseHelp, "paused", paused)
}

func (p program) resumeCommand() *cobra.Command {
	s := &steering{program: p}
	return s.liftCommand("resume sink|topic|key|relay NAME", "End a pause", resumeHelp, "resumed", paused)
}

func (p program) limitCommand() *cobra.Command {
	s := &steering{program: p}
	return s.setCommand("limit sink NAME RATE", "Limit the rate at which all relays together send to a sink", limitHelp, "limited", func(command *cobra.Command, args []string) (storage.Control, error) {
		if len(args) == 3 && args[0] == "sink" {
			rate, err := strconv.Atoi(strings.TrimSuffix(args[2], "/s"))
			if err == nil && rate > 0 {
				return storage.Control{Kind: storage.LimitSink, Name: args[1], Rate: rate}, nil
			}
		}
		return storage.Control{}, usagef("wrong arguments: use %s sink NAME RATE, with a rate such as 100/s", command.CommandPath())
	})
}

func (p program) unlimitCommand() *cobra.Command {
	s := &steering{program: p}
	return s.liftCommand("unlimit sink NAME", "End a limit", "", "unlimited", func(command *cobra.Command, args []string) (storage.Control, error) {
		if len(args) == 2 && args[0] == "sink" {
			return storage.Control{Kind: storage.LimitSink, Name: args[1], Rate: 1}, nil
		}
		return storage.Control{}, usagef("wrong arguments: use %s sink NAME", command.CommandPath())
	})
}

func (p program) actionsCommand() *cobra.Command {
	var t target
	var asJSON bool
	var limit int
	command := &cobra.Command{
		Use: "actions", Short: "List the actions of operators", Long: actionsHelp, Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit must be at least 1, not %d", limit)
			}
			return t.operate(p, command, func(ctx context.Context, operator storage.Operator) error {
				actions, err := operator.Actions(ctx, limit)
				if err != nil {
					return err
				}
				if asJSON {
					return p.printJSON(append([]storage.Action{}, actions...))
				}
				rows := [][]string{{"AT", "BY", "ACTION", "TARGET", "CHANGED", "REASON"}}
				for _, a := range actions {
					changed := "-"
					if a.Changed >= 0 {
						changed = fmt.Sprint(a.Changed)
					}
					rows = append(rows, []string{p.when(a.At), cell(a.By, 40), a.Action, cell(a.Target, 80), changed, cell(a.Reason, 60)})
				}
				return p.printTable(rows)
			})
		},
	}
	t.addFlags(command)
	jsonFlag(command, &asJSON)
	command.Flags().IntVar(&limit, "limit", 50, "list at most this `number` of actions")
	return command
}

// printControls prints the pauses and limits.
func (p program) printControls(controls []storage.Control) error {
	if len(controls) == 0 {
		return nil
	}
	rows := [][]string{{"\nIN FORCE", "NAME", "RATE", "SINCE", "UNTIL", "BY", "REASON"}}
	for _, c := range controls {
		what, rate := "paused "+string(c.Kind), ""
		if c.Kind == storage.LimitSink {
			what, rate = "limited sink", fmt.Sprintf("%d/s", c.Rate)
		}
		rows = append(rows, []string{what, cell(c.Name, 60), rate, p.when(c.Since), p.when(c.Ends), cell(c.By, 40), cell(c.Reason, 60)})
	}
	return p.printTable(rows)
}
