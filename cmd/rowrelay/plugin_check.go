package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

const pluginCheckHelp = `Check plug-ins, those of a configuration or those named: each is started, asked
what it is, opened with its settings, closed and ended. Nothing is sent. Settings
of one that is named stand in its URL:

  rowrelay plugin check ./filesink
  rowrelay plugin check 'plugin:./nats?config.url=nats://localhost:4222&secrets.token=…'

rowrelay plugin describe says which settings a plug-in has.`

func (p program) pluginCheckCommand() *cobra.Command {
	c := &pluginCommands{program: p}
	return c.command("check [PLUGIN…]", "Start plug-ins and see whether they can be opened", pluginCheckHelp, func(ctx context.Context, found []namedPlugin) error {
		report := &check{runFlags: runFlags{program: c.program}, json: c.json}
		for _, each := range found {
			report.checkPlugin(ctx, each)
		}
		return report.report()
	})
}

// checkPlugin checks a plug-in. What fails ends it.
func (c *check) checkPlugin(ctx context.Context, each namedPlugin) {
	limited, cancel := context.WithTimeout(ctx, 2*sinkTimeout)
	defer cancel()
	name := "plug-in " + each.name + ": "
	defer func() {
		if err := each.sink.Close(limited); err != nil {
			c.tried(name+"close", "", err)
		}
	}()
	d, err := each.sink.Describe(limited)
	if !c.tried(name+"start", fmt.Sprintf("%s %s, protocol %d", d.Name, cmp.Or(d.Version, "(no version)"), d.Protocol), err) {
		return
	}
	c.tried(name+"open", "can be opened", each.sink.Open(limited))
}
