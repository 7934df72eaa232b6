package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
)

func (p program) pluginCommand() *cobra.Command {
	return group("plugin", "List, check or describe plug-ins", p.pluginListCommand(), p.pluginCheckCommand(), p.pluginDescribeCommand())
}

// pluginFlags holds the flags of the group's commands.
type pluginFlags struct {
	program
	config string
	json   bool

	byDefault func() []string // returns the plug-ins to use if the command line names none; nil if the user must name one
}

// namedPlugin is a plug-in with its name: the name of its sink in the configuration, or the path of its program.
type namedPlugin struct {
	name string
	sink *plugins.Sink
}

// command makes one of the group's commands. It calls the function work with plug-ins
// that have not been started.
func (c *pluginFlags) command(use, short, long string, work func(context.Context, []namedPlugin) error) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			if c.config == "" && len(args) == 0 && c.byDefault != nil {
				args = c.byDefault()
			}
			found, err := c.find(args)
			if err != nil {
				return usage(err)
			}
			return work(command.Context(), found)
		},
	}
	configFlag(command, &c.config, "use the plug-ins of this configuration `file`")
	jsonFlag(command, &c.json)
	return command
}

// find makes the plug-ins that the arguments or the configuration name. An argument is a plug-in's URL or the
// path of its program. A plug-in's name leaves out the settings in its URL, because they may be secret.
func (c *pluginFlags) find(args []string) (found []namedPlugin, err error) {
	if named := len(args) > 0; named && c.config != "" || !named && c.config == "" && c.byDefault == nil {
		return nil, errors.New("name plug-ins, as ./path or plugin:./path?arg=…, or give --config")
	}
	const scheme = "plugin:"
	var candidates []config.Sink
	for _, arg := range args {
		sink := config.Sink{Name: arg, URL: scheme + (&url.URL{Path: arg}).EscapedPath()}
		if rest, isURL := strings.CutPrefix(arg, scheme); isURL {
			sink.Name, _, _ = strings.Cut(rest, "?")
			sink.URL = arg
		}
		candidates = append(candidates, sink)
	}
	if c.config != "" {
		configured, err := config.Load(c.config, c.kinds)
		if err != nil {
			return nil, err
		}
		candidates = configured.Sinks
	}
	for _, candidate := range candidates {
		sink, problem := candidate.Make(c.kinds)
		if problem != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", candidate.Name, problem))
		}
		if plugin, ok := sink.(*plugins.Sink); ok {
			found = append(found, namedPlugin{candidate.Name, plugin})
		}
	}
	if err == nil && len(found) == 0 && c.config != "" {
		err = errors.New(c.config + " has no plug-ins")
	}
	return found, err
}

const pluginListHelp = `List plug-ins with their programs and the programs' SHA-256 checksums. A configuration can
require a checksum with the setting sha256. The command doesn't start plug-ins that are
named by arguments or by --config.

Without arguments and --config, list the programs in PATH whose names begin with
rowrelay-plugin-, and start them to get their kinds and versions. To run one of them, a sink
of a configuration needs type: plugin and path: rowrelay-plugin-NAME.`

// listedPlugin is the JSON output of list for a plug-in.
type listedPlugin struct {
	Sink     string `json:"sink"`
	Program  string `json:"program"`
	Kind     string `json:"kind,omitempty"` // Kind and Version are set if list has started the plug-in
	Version  string `json:"version,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
	Checksum string `json:"checksum"`          // whether SHA256 is the configured checksum, or why the program can't be read
	Problem  string `json:"problem,omitempty"` // why the plug-in doesn't start
}

func (p program) pluginListCommand() *cobra.Command {
	c, started := &pluginFlags{program: p}, false
	c.byDefault = func() []string {
		started = true
		return installedPlugins(os.Getenv("PATH"))
	}
	return c.command("list [PLUGIN…]", "List plug-ins and their checksums", pluginListHelp, func(ctx context.Context, found []namedPlugin) error {
		listed, columns := make([]listedPlugin, len(found)), []string{"SINK", "PROGRAM", "CHECKSUM", "SHA256"}
		if started {
			columns = []string{"PROGRAM", "KIND", "VERSION", "SHA256"}
		}
		rows := [][]string{columns}
		for i, each := range found {
			l := listPlugin(each)
			if started {
				l = startListed(ctx, each.sink, l)
				rows = append(rows, []string{l.Program, cmp.Or(l.Kind, "doesn't start: "+l.Problem), l.Version, l.SHA256})
			} else {
				rows = append(rows, []string{l.Sink, l.Program, l.Checksum, l.SHA256})
			}
			listed[i] = l
		}
		switch {
		case c.json:
			return c.printJSON(listed)
		case len(listed) == 0:
			return c.print("PATH has no programs whose names begin with " + pluginPrefix + "\n")
		}
		return c.printTable(rows)
	})
}

// listPlugin compares the plug-in's checksum with the configured one.
func listPlugin(each namedPlugin) listedPlugin {
	has, must, err := each.sink.Checksums()
	l := listedPlugin{Sink: each.name, Program: each.sink.Program(), SHA256: has}
	switch {
	case err != nil:
		l.Checksum, l.SHA256 = "can't be read: "+err.Error(), ""
	case must == "":
		l.Checksum = "not configured"
	case must == has:
		l.Checksum = "as configured"
	default:
		l.Checksum = "DIFFERENT from the configuration"
	}
	return l
}

// startListed starts the plug-in, and adds the kind and the version that it reports, or the error.
func startListed(ctx context.Context, sink *plugins.Sink, l listedPlugin) listedPlugin {
	d, err := describe(ctx, sink)
	if err != nil {
		l.Problem = err.Error()
	} else {
		l.Kind, l.Version = d.Name, cmp.Or(d.Version, "(no version)")
	}
	return l
}

// pluginPrefix is the prefix of the names of the programs that list finds.
const pluginPrefix = "rowrelay-plugin-"

// installedPlugins returns the paths of the plug-ins in the directories of path, sorted by name. Of several
// programs with the same name, it returns the one that a sink would run.
func installedPlugins(path string) (programs []string) {
	seen := map[string]bool{}
	for _, folder := range filepath.SplitList(path) {
		entries, _ := os.ReadDir(folder) // PATH may contain directories that don't exist
		for _, entry := range entries {
			name := entry.Name()
			if !strings.HasPrefix(name, pluginPrefix) || seen[name] {
				continue
			}
			if program, err := exec.LookPath(filepath.Join(folder, name)); err == nil { // the program can be executed
				seen[name] = true
				programs = append(programs, program)
			}
		}
	}
	slices.SortFunc(programs, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return programs
}

// pluginTimeout limits the time that a plug-in may take to start and to open.
const pluginTimeout = 2 * sinkTimeout

const pluginCheckHelp = `Check plug-ins: start each one, read its description, check that it can be opened with its
settings, close it and end it. Nothing is sent or created, unless the plug-in doesn't
support checks: then it is opened as usual. For a plug-in that isn't in a configuration, give the
settings in its URL:

  rowrelay plugin check ./filesink
  rowrelay plugin check 'plugin:./nats?config.url=nats://localhost:4222&secrets.token=…'

rowrelay plugin describe lists the settings of a plug-in.`

func (p program) pluginCheckCommand() *cobra.Command {
	c := &pluginFlags{program: p}
	return c.command("check [PLUGIN…]", "Check that plug-ins start and can be opened", pluginCheckHelp, func(ctx context.Context, found []namedPlugin) error {
		report := &checkReport{program: c.program, json: c.json}
		for _, each := range found {
			report.checkPlugin(ctx, each)
		}
		return report.print()
	})
}

// checkPlugin checks a plug-in, and returns at the first failed check.
func (c *checkReport) checkPlugin(ctx context.Context, each namedPlugin) {
	limited, cancel := context.WithTimeout(ctx, pluginTimeout)
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
	c.tried(name+"open", "can be opened", each.sink.Check(limited))
}

const pluginDescribeHelp = `Describe plug-ins, and the settings that they take under config and secrets. The command
starts the plug-ins but doesn't open them, so it doesn't need their settings.`

// describedPlugin is the JSON output of describe for a plug-in.
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
	c := &pluginFlags{program: p}
	return c.command("describe [PLUGIN…]", "Describe plug-ins and their settings", pluginDescribeHelp, func(ctx context.Context, found []namedPlugin) error {
		var described []describedPlugin
		for _, each := range found {
			d, err := describe(ctx, each.sink)
			if err != nil {
				return err
			}
			if !c.json {
				kind := sinks.Kind{Name: strings.TrimSpace(d.Name + " " + d.Version), Summary: d.Summary, Fields: d.Fields}
				text := kind.Describe() + fmt.Sprintf("program: %s, plug-in protocol %d\n", each.sink.Program(), d.Protocol)
				if err := c.print(printable(text)); err != nil {
					return err
				}
				continue
			}
			shown := describedPlugin{
				Program: each.sink.Program(), Name: d.Name, Summary: d.Summary, Version: d.Version, Protocol: d.Protocol, Settings: []describedSetting{},
			}
			for _, f := range d.Fields {
				shown.Settings = append(shown.Settings, describedSetting{
					Name: f.Name, Type: string(f.Type), Required: f.Required, Default: f.Default, Min: f.Min, Max: f.Max, Choices: f.Choices, Help: f.Help,
				})
			}
			described = append(described, shown)
		}
		if c.json {
			return c.printJSON(described)
		}
		return nil
	})
}

// describe starts a plug-in, returns its description, and ends it.
func describe(ctx context.Context, sink *plugins.Sink) (plugins.Description, error) {
	limited, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	d, err := sink.Describe(limited)
	return d, errors.Join(err, sink.Close(limited))
}
