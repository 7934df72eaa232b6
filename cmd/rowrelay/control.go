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

const pauseHelp = `Have all relays of a table stop sending, within a second, until rowrelay resume or a
given time. It is stored with the table, so that it survives restarts; rowrelay
status shows it, and rowrelay actions who has done it. What is being sent ends as
usual. Nothing is charged or lost, and what isn't paused goes on.

  sink NAME   nothing is sent to this sink
  topic NAME  no message of this topic is sent, and none that follows one in its key
  key KEY     no message with this key is sent, of any topic, to any sink (by lanes only)
  relay NAME  this relay leaves its part to the others, if others live`

const resumeHelp = `End a pause, for all relays of the table: they go on within a second.`

const limitHelp = `Have all relays of a table together send a sink no more than so many messages a second:
each relay its part, by how many live. Of a relay that has started the others know
within two seconds.`

const actionsHelp = `List what operators have done: pause, resume, limit, unlimit, requeue, redirect, skip,
discard and replay, the last action first. One without a count is being done, or
broke off.`

// steering are the flags of commands that put something in force.
type steering struct {
	program
	target      target
	by, reason  string
	until, last string
}

// author adds the flags by which the log knows who has done something, and why.
func author(command *cobra.Command, by, reason *string) {
	name, host := "", ""
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	host, _ = os.Hostname()
	command.Flags().StringVar(by, "by", "", "who does it, for the log (default `user@host`)")
	command.Flags().StringVar(reason, "reason", "", "why, for the log: a `text`")
	before := command.PreRunE
	command.PreRunE = func(command *cobra.Command, args []string) error {
		if *by == "" {
			*by = strings.Trim(name+"@"+host, "@")
		}
		if len(*by) > 255 || len(*reason) > 255 {
			return usagef("--by and --reason have at most 255 bytes each")
		}
		if before != nil {
			return before(command, args)
		}
		return nil
	}
}

// pausable are the kinds that a pause has.
var pausable = []storage.ControlKind{storage.PauseSink, storage.PauseTopic, storage.PauseKey, storage.PauseRelay}

// paused reads which pause is meant.
func paused(command *cobra.Command, args []string) (c storage.Control, err error) {
	if len(args) == 2 && args[1] != "" && slices.Contains(pausable, storage.ControlKind(args[0])) {
		return storage.Control{Kind: storage.ControlKind(args[0]), Name: args[1]}, nil
	}
	return c, usagef("say what: %s sink NAME, topic NAME, key KEY or relay NAME", command.CommandPath())
}

// command makes one of the commands; read gets what is meant from its arguments.
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

// lasting adds the flags that say until when.
func (s *steering) lasting(command *cobra.Command) {
	command.Flags().StringVar(&s.until, "until", "", "until this `time`: 14:00 (the next one, by this machine's clock) or 2026-01-31T14:00:00Z")
	command.Flags().StringVar(&s.last, "for", "", "for so long, such as 90m or 2d: a `duration`")
}

// lasts is for how long, from now on; 0 is until it is lifted.
func (s *steering) lasts(now time.Time) (time.Duration, error) {
	switch {
	case s.until != "" && s.last != "":
		return 0, usagef("give --until or --for, not both")
	case s.last != "":
		lasts, err := settings.Field{Type: settings.TypeDuration, Min: "1s", Max: "3650d"}.Parse(s.last)
		if err != nil {
			return 0, usagef("--for: %q is no duration such as 90m or 2d, of a second or more", s.last)
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
		return 0, usagef("--until: %q is no time to come such as 14:00 or 2026-01-31T14:00:00Z", s.until)
	}
	return until.Sub(now), nil
}

// setCommand makes a command that puts a control in force.
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
			if errors.Is(err, operate.ErrNoKeys) || errors.Is(err, operate.ErrUnknown) {
				return usage(err)
			}
			return err
		}
		return s.print(done + " " + printable(c.Set(lasts).Target) + "\n")
	})
	s.lasting(command)
	return command
}

// liftCommand makes a command that ends a control.
func (s *steering) liftCommand(use, short, long, done string, read func(*cobra.Command, []string) (storage.Control, error)) *cobra.Command {
	return s.command(use, short, long, read, func(ctx context.Context, operator storage.Operator, c storage.Control) error {
		was, err := operator.LiftControl(ctx, c)
		if err != nil {
			return err
		}
		if !was {
			return fmt.Errorf("%s was not %s: rowrelay status shows what is in force", c.Lifted().Target, map[bool]string{true: "limited", false: "paused"}[c.Kind == storage.LimitSink])
		}
		return s.print(done + " " + printable(c.Lifted().Target) + "\n")
	})
}

func (p program) pauseCommand() *cobra.Command {
	s := &steering{program: p}
	return s.setCommand("pause sink|topic|key|relay NAME", "Have all relays stop sending to a sink, or of a topic or a key", pauseHelp, "paused", paused)
}

func (p program) resumeCommand() *cobra.Command {
	s := &steering{program: p}
	return s.liftCommand("resume sink|topic|key|relay NAME", "End a pause", resumeHelp, "resumed", paused)
}

func (p program) limitCommand() *cobra.Command {
	s := &steering{program: p}
	return s.setCommand("limit sink NAME RATE", "Bound what all relays together send to a sink, such as 100/s", limitHelp, "limited", func(command *cobra.Command, args []string) (storage.Control, error) {
		if len(args) == 3 && args[0] == "sink" {
			rate, err := strconv.Atoi(strings.TrimSuffix(args[2], "/s"))
			if err == nil && rate > 0 {
				return storage.Control{Kind: storage.LimitSink, Name: args[1], Rate: rate}, nil
			}
		}
		return storage.Control{}, usagef("say which and how many a second: %s sink NAME 100/s", command.CommandPath())
	})
}

func (p program) unlimitCommand() *cobra.Command {
	s := &steering{program: p}
	return s.liftCommand("unlimit sink NAME", "End a limit", "", "unlimited", func(command *cobra.Command, args []string) (storage.Control, error) {
		if len(args) == 2 && args[0] == "sink" {
			return storage.Control{Kind: storage.LimitSink, Name: args[1], Rate: 1}, nil
		}
		return storage.Control{}, usagef("say which: %s sink NAME", command.CommandPath())
	})
}

func (p program) actionsCommand() *cobra.Command {
	var t target
	var asJSON bool
	var limit int
	command := &cobra.Command{
		Use: "actions", Short: "List what operators have done", Long: actionsHelp, Args: noArguments,
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
	command.Flags().IntVar(&limit, "limit", 50, "at most this `number`")
	return command
}

// printControls shows what is in force.
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
