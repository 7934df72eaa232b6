package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
)

const checkHelp = `Check what rowrelay run would need, one line a check: the configuration, the
connections, the tables, the rights of the database's user, the plan of a claim,
and whether the sinks can be opened. Nothing is changed and nothing is sent.`

// sinkTimeout is how long a sink may take to open.
const sinkTimeout = 10 * time.Second

// finding is what one check found.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"` // what to do where it isn't ok
}

// check is the command's state.
type check struct {
	runFlags
	json     bool
	findings []finding
}

func (p program) checkCommand() *cobra.Command {
	c := &check{runFlags: runFlags{program: p}}
	command := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, connections, tables, rights and sinks",
		Long:  checkHelp,
		Args:  noArguments,
		RunE:  c.run,
	}
	c.target.addConfigFlag(command, "check what this configuration `file` says")
	c.target.addTableFlags(command)
	command.Flags().StringVar(&c.sink, "sink", "", "with --database: where to, a `URL`")
	command.Flags().String("claim", "", "with --database: the way to claim, `lanes or rows`")
	jsonFlag(command, &c.json)
	return command
}

func (c *check) run(command *cobra.Command, _ []string) error {
	if configured, ok, err := c.checkConfig(command); err != nil {
		return err
	} else if ok {
		c.checkAll(command.Context(), configured)
	}
	return c.report()
}

func (c *check) checkAll(ctx context.Context, configured config.Config) {
	for _, source := range configured.Sources {
		c.checkSource(ctx, source)
		for _, sink := range configured.SinksOf(source.Name) {
			c.checkSink(ctx, source, sink)
		}
	}
}

// checkConfig reads the configuration. What is wrong with the file is a
// finding, what is wrong with the flags an error.
func (c *check) checkConfig(command *cobra.Command) (configured config.Config, ok bool, err error) {
	if c.target.config == "" {
		configured, err = c.withoutFile(command)
		return configured, err == nil, usage(err)
	}
	if configured, err = c.fromFile(command); err != nil {
		c.addProblems(err)
		return configured, false, nil
	}
	c.add(finding{Name: "config", OK: true, Detail: fmt.Sprintf("%s: %d sources, %d sinks, %d routes",
		c.target.config, len(configured.Sources), len(configured.Sinks), len(configured.Routes))})
	return configured, true, nil
}

// withoutFile checks a table, and a sink if one was named.
func (c *check) withoutFile(command *cobra.Command) (config.Config, error) {
	if c.sink != "" {
		return c.fromFlags(command)
	}
	source, err := c.target.resolve(c.program, command)
	if err == nil {
		err = set(command, setting{flag: "claim", name: "claim"}, source.Set)
	}
	return config.Config{Sources: []config.Source{source}}, err
}

func (c *check) add(f finding) { c.findings = append(c.findings, f) }

func (c *check) report() error {
	failed := 0
	for _, f := range c.findings {
		if !f.OK {
			failed++
		}
	}
	if err := c.show(failed == 0); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(c.findings))
	}
	return nil
}

func (c *check) show(ok bool) error {
	if c.json {
		return c.printJSON(map[string]any{"ok": ok, "checks": c.findings})
	}
	for _, f := range c.findings {
		line := "ok    " + f.Name
		if !f.OK {
			line = "FAIL  " + f.Name
		}
		if f.Detail != "" {
			line += ": " + f.Detail
		}
		if f.Hint != "" && !f.OK {
			line += "\n      " + f.Hint
		}
		if err := c.print(printable(line) + "\n"); err != nil {
			return err
		}
	}
	return nil
}
