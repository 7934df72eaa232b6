package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/relay"
)

// configuration is that of the file, or the one that the flags describe. The
// flags for the process itself go with either.
func (r *runFlags) configuration(command *cobra.Command) (c config.Config, err error) {
	if r.target.config != "" {
		c, err = r.fromFile(command)
	} else {
		c, err = r.fromFlags(command)
	}
	if err != nil {
		return c, err
	}
	return c, errors.Join(
		set(command, setting{flag: "admin", name: "listen"}, c.Admin.Set),
		set(command, setting{flag: "log-level", name: "level"}, c.Log.Set),
		set(command, setting{flag: "log-format", name: "format"}, c.Log.Set),
	)
}

// fromFile refuses flags for what the file has to say.
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
		return config.Config{}, errors.New("no sink was named: give --sink https://example.org/messages, --sink stdout: or the like, or --config")
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
		problems = append(problems, errors.New("--listen can't be on: only PostgreSQL has notifications, the relay polls"))
	}
	if source.Claim != relay.ByRows && (source.Pick != "" || len(source.Topics) > 0) {
		problems = append(problems, errors.New("--pick and --topics work with --claim rows only"))
	}
	if _, err := sink.Make(r.kinds); err != nil {
		problems = append(problems, fmt.Errorf("--sink: %w", err))
	}
	return config.Config{Sources: []config.Source{source}, Sinks: []config.Sink{sink}}, errors.Join(problems...)
}

// set hands a flag that was given to the setting that it stands for.
func set(command *cobra.Command, s setting, to func(name, text string) error) error {
	if !command.Flags().Changed(s.flag) {
		return nil
	}
	if err := to(s.name, command.Flags().Lookup(s.flag).Value.String()); err != nil {
		return fmt.Errorf("--%s: %w", s.flag, err)
	}
	return nil
}
