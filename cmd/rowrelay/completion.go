package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// completionTime is the time that completion may wait for the database, unless program.completionTime replaces it.
const completionTime = 2 * time.Second

// completeValues registers shell completion for the values of all commands' flags: fixed values, names from the
// configuration, and names from the table. If a query fails, nothing is completed.
func (p program) completeValues(command *cobra.Command) {
	for _, below := range command.Commands() {
		p.completeValues(below)
	}
	states := make([]string, len(operate.States))
	for i, state := range operate.States {
		states[i] = string(state)
	}
	for flag, values := range map[string]func(*cobra.Command) []string{
		"topic":  func(command *cobra.Command) []string { return p.known(command).topics },
		"sink":   func(command *cobra.Command) []string { return p.known(command).sinks },
		"to":     func(command *cobra.Command) []string { return p.known(command).sinks },
		"source": p.sources,

		"state": func(*cobra.Command) []string { return states },
		"claim": func(*cobra.Command) []string { return []string{string(storage.ByLanes), string(storage.ByRows)} },
		"pick": func(*cobra.Command) []string {
			return []string{string(storage.Oldest), string(storage.Newest), string(storage.Priority)}
		},
		"log-level": func(*cobra.Command) []string { return []string{"debug", "info", "warn", "error"} },
	} {
		if command.Flags().Lookup(flag) == nil || command.Name() == "run" && flag == "sink" || command.Name() == "adopt" && flag == "topic" { // run --sink takes a URL, and adopt --topic an SQL expression
			continue
		}
		_ = command.RegisterFlagCompletionFunc(flag, func(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return beginning(values(command), typed), cobra.ShellCompDirectiveNoFileComp
		})
	}
	switch command.Name() {
	case "pause", "resume":
		command.ValidArgsFunction = p.completeNames(pausable)
	case "limit", "unlimit":
		command.ValidArgsFunction = p.completeNames([]storage.ControlKind{storage.PauseSink})
	}
}

// completeNames completes the first two arguments of pause, resume, limit and unlimit: a kind and a name.
func (p program) completeNames(kinds []storage.ControlKind) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			for _, kind := range kinds {
				found = append(found, string(kind))
			}
		case 1:
			known := p.known(command)
			found = map[string][]string{string(storage.PauseSink): known.sinks, string(storage.PauseTopic): known.topics, string(storage.PauseRelay): known.relays}[args[0]]
		}
		return beginning(found, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// targetTyped returns the table that an incomplete command line selects.
func targetTyped(command *cobra.Command) *target {
	typed := func(flag string) string {
		if found := command.Flags().Lookup(flag); found != nil {
			return found.Value.String()
		}
		return ""
	}
	return &target{database: typed("database"), table: typed("table"), config: typed("config"), source: typed("source")}
}

func (p program) sources(command *cobra.Command) []string {
	c, _ := config.LoadSources(targetTyped(command).config, p.kinds)
	return c.SourceNames()
}

// knownNames are names that were found in a configuration and in the rows of a table. The lists may be incomplete.
type knownNames struct{ topics, sinks, relays []string }

// known returns the names from the configuration, and from bounded queries of the table.
func (p program) known(command *cobra.Command) (names knownNames) {
	t := targetTyped(command)
	if t.config != "" {
		c, _ := config.LoadSources(t.config, p.kinds)
		names.sinks = c.SinkNames()
	}
	source, err := t.resolve(p, command)
	if err != nil {
		return names
	}
	ctx, cancel := context.WithTimeout(command.Context(), cmp.Or(p.completionTime, completionTime))
	defer cancel()
	_ = withOperator(ctx, source, func(operator storage.Operator) error {
		status, err := operator.Status(ctx)
		if err != nil {
			return err
		}
		for topic := range status.Topics {
			names.topics = append(names.topics, topic)
		}
		for _, relay := range status.Relays {
			names.relays = append(names.relays, relay.Name)
		}
		for _, control := range status.Controls {
			switch control.Kind {
			case storage.PauseSink, storage.LimitSink:
				names.sinks = append(names.sinks, control.Name)
			case storage.PauseTopic:
				names.topics = append(names.topics, control.Name)
			case storage.PauseRelay:
				names.relays = append(names.relays, control.Name)
			}
		}
		recent, err := operator.List(ctx, storage.Filter{State: storage.StateError, NoPayloads: true}) // parked messages are the most likely to be selected
		for _, info := range recent {
			names.topics = append(names.topics, info.Message.Topic)
			names.sinks = append(names.sinks, storage.SplitSinks(info.Sinks)...)
		}
		if follower, ok := operator.(storage.Follower); ok && err == nil {
			recent, err = follower.LastDelivered(ctx, storage.Filter{}, time.Time{})
			for _, info := range recent {
				names.topics = append(names.topics, info.Message.Topic)
				names.sinks = append(names.sinks, storage.SplitSinks(info.Sinks)...)
			}
		}
		return err
	})
	return names
}

// beginning returns the names that begin with the typed text, sorted and without duplicates. It leaves out names
// with blanks or control characters, because a shell would split them.
func beginning(names []string, typed string) (found []string) {
	for _, name := range names {
		if strings.HasPrefix(name, typed) && printable(name) == name && !strings.ContainsAny(name, " \t\n") {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
