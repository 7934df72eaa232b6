package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/plugins"
)

// pluginCommands is the group of commands about plug-ins.
type pluginCommands struct {
	program
	config string
	json   bool
}

// namedPlugin is a plug-in and what the configuration calls it, or its program.
type namedPlugin struct {
	name string
	sink *plugins.Sink
}

func (p program) pluginCommand() *cobra.Command {
	group := &cobra.Command{
		Use:   "plugin",
		Short: "List, check or describe plug-ins",
		Args:  cobra.ArbitraryArgs,
		RunE:  onlyCommands,
	}
	group.AddCommand(p.pluginListCommand(), p.pluginCheckCommand(), p.pluginDescribeCommand())
	return group
}

// command makes one of the group's commands, whose work is given plug-ins that
// have not been started.
func (c *pluginCommands) command(use, short, long string, work func(context.Context, []namedPlugin) error) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			found, err := c.find(args)
			if err != nil {
				return usage(err)
			}
			return work(command.Context(), found)
		},
	}
	command.Flags().StringVar(&c.config, "config", "", "the plug-ins of this configuration `file`")
	_ = command.MarkFlagFilename("config", "yaml", "yml") // only for completion
	jsonFlag(command, &c.json)
	return command
}

// find makes the plug-ins of the arguments, or of the configuration.
func (c *pluginCommands) find(args []string) ([]namedPlugin, error) {
	if (c.config == "") == (len(args) == 0) {
		return nil, errors.New("name plug-ins, as ./path or plugin:./path?arg=…, or give --config")
	}
	var candidates []config.Sink
	for _, arg := range args {
		candidates = append(candidates, config.Sink{Name: programOf(arg), URL: pluginURL(arg)})
	}
	if c.config != "" {
		configured, err := config.Load(c.config, c.kinds)
		if err != nil {
			return nil, err
		}
		candidates = configured.Sinks
	}
	return c.made(candidates)
}

func (c *pluginCommands) made(candidates []config.Sink) (found []namedPlugin, err error) {
	for _, candidate := range candidates {
		sink, problem := candidate.Make(c.kinds)
		if problem != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", candidate.Name, problem))
		}
		if plugin, ok := sink.(*plugins.Sink); ok {
			found = append(found, namedPlugin{candidate.Name, plugin})
		}
	}
	if err == nil && len(found) == 0 {
		err = errors.New("there are no plug-ins in " + c.config)
	}
	return found, err
}

const pluginScheme = "plugin:"

// pluginURL is the URL that an argument is, or means.
func pluginURL(arg string) string {
	if strings.HasPrefix(arg, pluginScheme) {
		return arg
	}
	return pluginScheme + (&url.URL{Path: arg}).EscapedPath()
}

// programOf is the argument without settings, which may be secret.
func programOf(arg string) string {
	if rest, isURL := strings.CutPrefix(arg, pluginScheme); isURL {
		arg, _, _ = strings.Cut(rest, "?")
	}
	return arg
}
