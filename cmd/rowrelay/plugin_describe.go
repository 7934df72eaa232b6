package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
)

const pluginDescribeHelp = `Say what plug-ins are, and which settings they take under config and secrets. They
are started for that, but not opened, so their settings need not be there.`

// describedPlugin is what describe says of a plug-in, as JSON.
type describedPlugin struct {
	Program  string             `json:"program"`
	Name     string             `json:"name"`
	Summary  string             `json:"summary"`
	Version  string             `json:"version,omitempty"`
	Protocol int                `json:"protocol"`
	Settings []describedSetting `json:"settings"`
}

type describedSetting struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Required bool     `json:"required,omitempty"`
	Default  string   `json:"default,omitempty"`
	Min      string   `json:"min,omitempty"`
	Max      string   `json:"max,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Help     string   `json:"help"`
}

func (p program) pluginDescribeCommand() *cobra.Command {
	c := &pluginCommands{program: p}
	return c.command("describe [PLUGIN…]", "Say what plug-ins are and which settings they have", pluginDescribeHelp, func(ctx context.Context, found []namedPlugin) error {
		var described []describedPlugin
		for _, each := range found {
			d, err := describe(ctx, each.sink)
			if err != nil {
				return err
			}
			described = append(described, describedOf(each, d))
			if !c.json {
				err = c.print(printable(descriptionText(each, d)))
			}
			if err != nil {
				return err
			}
		}
		if c.json {
			return c.printJSON(described)
		}
		return nil
	})
}

func describe(ctx context.Context, sink *plugins.Sink) (plugins.Description, error) {
	limited, cancel := context.WithTimeout(ctx, 2*sinkTimeout)
	defer cancel()
	d, err := sink.Describe(limited)
	return d, errors.Join(err, sink.Close(limited))
}

func descriptionText(each namedPlugin, d plugins.Description) string {
	kind := sinks.Kind{Name: strings.TrimSpace(d.Name + " " + d.Version), Summary: d.Summary, Fields: d.Fields}
	return kind.Describe() + fmt.Sprintf("program: %s, plug-in protocol %d\n", each.sink.Program(), d.Protocol)
}

func describedOf(each namedPlugin, d plugins.Description) describedPlugin {
	out := describedPlugin{
		Program: each.sink.Program(), Name: d.Name, Summary: d.Summary, Version: d.Version, Protocol: d.Protocol, Settings: []describedSetting{},
	}
	for _, f := range d.Fields {
		out.Settings = append(out.Settings, describedSetting{
			Name: f.Name, Type: string(f.Type), Required: f.Required, Default: f.Default, Min: f.Min, Max: f.Max, Choices: f.Choices, Help: f.Help,
		})
	}
	return out
}
