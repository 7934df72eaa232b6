package main

import (
	"context"

	"github.com/spf13/cobra"
)

const pluginListHelp = `List the plug-ins of a configuration, or those named, without starting them: their
programs, and the SHA-256 checksums that these have, which a configuration may ask
for as sha256.`

// listedPlugin is what list says of a plug-in.
type listedPlugin struct {
	Sink     string `json:"sink"`
	Program  string `json:"program"`
	SHA256   string `json:"sha256,omitempty"`
	Checksum string `json:"checksum"` // as configured, another, not configured, or why there is none
}

func (p program) pluginListCommand() *cobra.Command {
	c := &pluginCommands{program: p}
	return c.command("list [PLUGIN…]", "List plug-ins and their checksums", pluginListHelp, func(_ context.Context, found []namedPlugin) error {
		listed := make([]listedPlugin, len(found))
		for i, each := range found {
			listed[i] = listedOf(each)
		}
		if c.json {
			return c.printJSON(listed)
		}
		rows := [][]string{{"SINK", "PROGRAM", "CHECKSUM", "SHA256"}}
		for _, l := range listed {
			rows = append(rows, []string{l.Sink, l.Program, l.Checksum, l.SHA256})
		}
		return c.printTable(rows)
	})
}

func listedOf(each namedPlugin) listedPlugin {
	l := listedPlugin{Sink: each.name, Program: each.sink.Program()}
	has, must, err := each.sink.Checksums()
	l.SHA256 = has
	switch {
	case err != nil:
		l.Checksum, l.SHA256 = "can't be read: "+err.Error(), ""
	case must == "":
		l.Checksum = "not configured"
	case must == has:
		l.Checksum = "as configured"
	default:
		l.Checksum = "ANOTHER than configured"
	}
	return l
}
