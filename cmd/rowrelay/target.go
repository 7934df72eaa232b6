package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const databaseVariable = "ROWRELAY_DATABASE"

// target holds the flags that select the table for a command.
type target struct {
	database, table string
	config, source  string

	loaded   config.Config // with --config: the configuration, once resolve or resolveAll has returned
	noServer bool          // the URL may consist of the scheme alone, because the command doesn't connect
}

// addFlags adds the flags that name a table.
func (t *target) addFlags(command *cobra.Command) {
	t.addTableFlags(command)
	configFlag(command, &t.config, "read the database and the table from this configuration `file`")
	command.Flags().StringVar(&t.source, "source", "", "the `name` of the source, if the configuration has several")
}

func (t *target) addTableFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&t.database, "database", "", "the database's `URL` (see rowrelay --help; default $"+databaseVariable+")")
	flags.StringVar(&t.table, "table", config.DefaultTable, "the table's `name`, or schema.name")
}

func configFlag(command *cobra.Command, file *string, help string) {
	command.Flags().StringVar(file, "config", "", help)
	_ = command.MarkFlagFilename("config", "yaml", "yml") // used only for shell completion
}

// resolve returns the table that the flags select. It fails if the flags select several tables.
func (t *target) resolve(p program, command *cobra.Command) (config.Source, error) {
	sources, err := t.resolveAll(p, command)
	if err != nil {
		return config.Source{}, err
	}
	if len(sources) > 1 {
		return config.Source{}, usagef("--source is required, because %s has several sources: %s", t.config, namesOf(sources))
	}
	return sources[0], nil
}

// hasRoute returns a function that reports whether the configuration has a route for a topic of the source. Without --config, the routes
// are unknown, and the function returns true.
func (t *target) hasRoute(source config.Source) func(topic string) bool {
	if t.config == "" {
		return func(string) bool { return true }
	}
	return func(topic string) bool { return t.loaded.HasRoute(source.Name, topic) }
}

// operate calls the function work with the operator of the table that the flags select.
func (t *target) operate(p program, command *cobra.Command, work func(context.Context, storage.Operator) error) error {
	source, err := t.resolve(p, command)
	if err != nil {
		return err
	}
	return withOperator(command.Context(), source, func(operator storage.Operator) error { return work(command.Context(), operator) })
}

// resolveAll returns the tables that the flags select. With --config and without
// --source, these are the tables of all sources.
func (t *target) resolveAll(p program, command *cobra.Command) ([]config.Source, error) {
	if t.config == "" {
		source, err := t.fromFlags()
		return []config.Source{source}, err
	}
	for _, flag := range []string{"database", "table"} {
		if command.Flags().Changed(flag) {
			return nil, usagef("--%s and --config can't be given together: the configuration names the table", flag)
		}
	}
	c, err := config.LoadSources(t.config, p.kinds)
	t.loaded = c
	if err != nil || t.source == "" {
		return c.Sources, usage(err)
	}
	i := slices.IndexFunc(c.Sources, func(source config.Source) bool { return source.Name == t.source })
	if i < 0 {
		return nil, usagef("--source: %s has no source %q, it has %s", t.config, t.source, namesOf(c.Sources))
	}
	return c.Sources[i : i+1], nil
}

// fromFlags returns the table that --database and --table name.
func (t *target) fromFlags() (source config.Source, err error) {
	if t.source != "" {
		return source, usagef("--source needs --config: without it there is only one table")
	}
	flag, database := "--database", t.database
	if database == "" {
		flag, database = "$"+databaseVariable, os.Getenv(databaseVariable)
	}
	if database == "" {
		return source, usagef("no database: give --database with a URL that begins with %s (see rowrelay --help), set $%s, or give --config", databases.Schemes(), databaseVariable)
	}
	parse := config.ParseDatabase
	if t.noServer {
		parse = config.ParseKind
	}
	source = config.Source{Name: t.table, Table: t.table}
	if source.Database, err = parse(database); err != nil {
		return source, usagef("%s: the value %w", flag, err)
	}
	if err := source.Set("table", t.table); err != nil {
		return source, usagef("--table: %w", err)
	}
	return source, nil
}

// checkSink checks the sink name given with --to. With --config, the
// configuration must have the sink.
func (t *target) checkSink(p program, to string) error {
	if strings.Contains(to, ",") || len(to) > storage.MostSinks {
		return usagef("--to must be the name of one sink, not %.40q", to)
	}
	if to == "" || t.config == "" { // without a configuration, checkLivingSink checks the live relays' sinks instead
		return nil
	}
	c, err := config.LoadSources(t.config, p.kinds)
	if err != nil {
		return usage(err)
	}
	if names := c.SinkNames(); !slices.Contains(names, to) {
		return usagef("--to: %s has no sink %q, it has %s", t.config, to, strings.Join(names, ", "))
	}
	return nil
}

// checkLivingSink checks the sink name given with --to. Without --config, a live relay must have the sink, because
// otherwise the messages would wait forever.
func (t *target) checkLivingSink(ctx context.Context, operator storage.Operator, to string) error {
	if to == "" || t.config != "" {
		return nil
	}
	status, err := operator.Status(ctx)
	if err != nil {
		return err
	}
	if !status.Has(storage.GaugeRelays) {
		return fmt.Errorf("--to: the relays of table %s could not be read in time: try again when the database is less busy, or give --config with the relay's configuration", t.table)
	}
	names, all := livingSinks(status)
	if !all || slices.Contains(names, to) {
		return nil
	}
	if len(names) == 0 {
		return usagef("--to: no relay is alive, so the existing sinks are unknown: give --config with the relay's configuration, or start the relay first")
	}
	return usagef("--to: no live relay has a sink %q; they have %s", to, strings.Join(names, ", "))
}

// livingSinks returns the names of the live relays' sinks. The result all is false if the relays may have more sinks, because a
// relay with many sinks doesn't publish all of them.
func livingSinks(status storage.Status) (names []string, all bool) {
	all = true
	for _, relay := range status.Relays {
		if !relay.Alive {
			continue
		}
		for _, sink := range relay.Config.Sinks {
			name, _, whole := strings.Cut(sink, ": ")
			if all = all && whole; whole && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, all
}

// isGone reports whether messages for the sink would wait forever: no live relay has the sink, and if a configuration is
// given, the configuration doesn't have the sink either.
func (t *target) isGone(ctx context.Context, p program, operator storage.Operator, sink string) (bool, error) {
	if sink == "" {
		return false, nil
	}
	if t.config != "" {
		c, err := config.LoadSources(t.config, p.kinds)
		if err != nil || slices.Contains(c.SinkNames(), sink) {
			return false, usage(err)
		}
	}
	status, err := operator.Status(ctx)
	if err != nil || !status.Has(storage.GaugeRelays) {
		return false, err
	}
	names, all := livingSinks(status)
	return all && !slices.Contains(names, sink), nil
}

func namesOf(sources []config.Source) string {
	names := make([]string, len(sources))
	for i, source := range sources {
		names[i] = source.Name
	}
	return strings.Join(names, ", ")
}
