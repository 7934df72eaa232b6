package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
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

// addProblems makes a finding of each thing that is wrong with the file.
func (c *check) addProblems(err error) {
	var problems *config.Problems
	if !errors.As(err, &problems) {
		c.add(finding{Name: "config", Detail: err.Error()})
		return
	}
	for _, problem := range problems.List {
		c.add(finding{Name: "config", Detail: problems.File + ":" + problem.String()})
	}
}

// checkSource checks a table. A check that fails ends it, since the next ones
// would fail for the same reason.
func (c *check) checkSource(ctx context.Context, source config.Source) {
	name := "source " + source.Name + ": "
	db, d, err := openDatabase(ctx, source.Database, false)
	if !c.tried(name+"connection", source.Database.String(), err) {
		return
	}
	c.checkTable(ctx, name, source, db, d)
	if err := db.Close(); err != nil {
		c.tried(name+"disconnection", "", err)
	}
}

func (c *check) checkTable(ctx context.Context, name string, source config.Source, db *sql.DB, d dialect.Dialect) {
	store, err := openStoreOn(ctx, source, db, d)
	if !c.tried(name+"schema", "table "+source.Table, explain(source, err)) {
		return
	}
	for _, found := range store.Check(ctx, wantedClaim(source)) {
		// These two are checked here: the schema above, with the whole command to
		// run, and the claim below, which only a living relay contradicts.
		if found.Name != "schema" && found.Name != "claim" {
			c.add(finding{Name: name + found.Name, OK: found.OK, Detail: found.Detail, Hint: found.Hint})
		}
	}
	status, err := store.Status(ctx)
	if err == nil {
		err = claimable(source, status)
	}
	c.tried(name+"claim", "by "+string(wantedClaim(source)), explain(source, err))
}

func wantedClaim(source config.Source) relay.Claim {
	if source.Claim == "" {
		return relay.ByLanes
	}
	return source.Claim
}

// claimable says whether a relay could claim the table the way that it is told.
func claimable(source config.Source, status relay.Status) error {
	if status.Claim == "" || status.Claim == wantedClaim(source) {
		return nil
	}
	for _, each := range status.Relays {
		if each.Alive {
			return fmt.Errorf("the relay %s claims by %s: %w", each.Name, status.Claim, relay.ErrOtherClaim)
		}
	}
	return nil
}

// checkSink makes a sink, opens it and closes it again.
func (c *check) checkSink(ctx context.Context, source config.Source, to config.Sink) {
	limited, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	sink, err := to.Make(c.kinds)
	if err == nil {
		err = errors.Join(sink.Open(limited), sink.Close(limited))
	}
	c.tried("source "+source.Name+": sink "+to.Name, "can be opened", err)
}

// tried adds the finding of something that was tried, and says whether it
// worked.
func (c *check) tried(name, detail string, err error) bool {
	if err == nil {
		c.add(finding{Name: name, OK: true, Detail: detail})
		return true
	}
	f := finding{Name: name, Detail: err.Error()}
	var explained *explainedError
	if errors.As(err, &explained) {
		f.Detail, f.Hint = explained.error.Error(), explained.hint
	}
	c.add(f)
	return false
}
