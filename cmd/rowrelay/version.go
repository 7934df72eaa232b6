package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/metrics"
)

// version is set by the linker in a release.
var version = ""

// build returns the program's version and revision, which the linker and the Go
// tool have stored in it.
func build() metrics.Build {
	b := metrics.Build{Version: version, Revision: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(b.Version, info.Main.Version)
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.Revision = setting.Value
		}
	}
	return b
}

func versionLine() string {
	b := build()
	return fmt.Sprintf("rowrelay %s (revision %s, %s)\n", b.Version, b.Revision, runtime.Version())
}

func (p program) versionCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				b := build()
				return p.printJSON(map[string]string{"version": b.Version, "revision": b.Revision, "go": runtime.Version()})
			}
			return p.print(versionLine())
		},
	}
	jsonFlag(command, &asJSON)
	return command
}
