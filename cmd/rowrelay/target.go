package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
)

const databaseVariable = "ROWRELAY_DATABASE"

// target is the table that a command works on, as it was typed.
type target struct {
	database, table string
	config, source  string

	noServer bool // the database's kind is enough
}

// addFlags adds the flags that name a table.
func (t *target) addFlags(command *cobra.Command) {
	t.addTableFlags(command)
	t.addConfigFlag(command, "take the database and table from this configuration `file`")
	command.Flags().StringVar(&t.source, "source", "", "the `name` of the source, where the configuration has several")
}

func (t *target) addTableFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&t.database, "database", "", "the database's `URL`: postgres://…, mysql://…, sqlite:path and others (default $"+databaseVariable+")")
	flags.StringVar(&t.table, "table", config.DefaultTable, "the table's `name`, or schema.name")
}

func (t *target) addConfigFlag(command *cobra.Command, help string) {
	command.Flags().StringVar(&t.config, "config", "", help)
	_ = command.MarkFlagFilename("config", "yaml", "yml") // only for completion
}

// resolve returns the one table that was meant.
func (t *target) resolve(p program, command *cobra.Command) (config.Source, error) {
	sources, err := t.resolveAll(p, command)
	if err != nil {
		return config.Source{}, err
	}
	if len(sources) > 1 {
		return config.Source{}, usagef("name one of the sources of %s with --source: %s", t.config, namesOf(sources))
	}
	return sources[0], nil
}

// resolveAll returns the tables that were meant: those of all sources of a
// configuration, unless one was named.
func (t *target) resolveAll(p program, command *cobra.Command) ([]config.Source, error) {
	if t.config != "" {
		return t.fromConfig(p, command)
	}
	if t.source != "" {
		return nil, usagef("--source needs --config: without it there is only one table")
	}
	parse := config.ParseDatabase
	if t.noServer {
		parse = config.ParseKind
	}
	source, err := sourceOf(t.database, t.table, parse)
	return []config.Source{source}, err
}

// sourceOf reads a database and table as flags have them.
func sourceOf(database, table string, parse func(string) (config.Database, error)) (source config.Source, err error) {
	flag := "--database"
	if database == "" {
		flag, database = "$"+databaseVariable, os.Getenv(databaseVariable)
	}
	if database == "" {
		return config.Source{}, usagef("no database was named: give --database postgres://user@host/name, mysql://user@host/name or sqlite:path/to/file.db, or set $%s", databaseVariable)
	}
	source = config.Source{Name: table, Table: table}
	if source.Database, err = parse(database); err != nil {
		return config.Source{}, usagef("%s: the value %w", flag, err)
	}
	if err := source.Set("table", table); err != nil {
		return config.Source{}, usagef("--table: %w", err)
	}
	return source, nil
}

func (t *target) fromConfig(p program, command *cobra.Command) ([]config.Source, error) {
	for _, flag := range []string{"database", "table"} {
		if command.Flags().Changed(flag) {
			return nil, usagef("--%s and --config can't be given together: the configuration names the table", flag)
		}
	}
	c, err := config.Load(t.config, p.kinds)
	if err != nil || t.source == "" {
		return c.Sources, usage(err)
	}
	for _, source := range c.Sources {
		if source.Name == t.source {
			return []config.Source{source}, nil
		}
	}
	return nil, usagef("--source: %s has no source %q, it has %s", t.config, t.source, namesOf(c.Sources))
}

func namesOf(sources []config.Source) string {
	names := make([]string, len(sources))
	for i, source := range sources {
		names[i] = source.Name
	}
	return strings.Join(names, ", ")
}
