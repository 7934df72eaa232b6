package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/app"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

const checkHelp = `Check everything that rowrelay run needs, and look for causes of slowness. Each check
prints one line. A failed check also prints the command or change that fixes it. The
checks cover:

  - the configuration, and the connection to each database
  - the schema, its columns, and the rights of the database's user
  - the database's clock, and transactions that have been open for a long time
  - the plan of each statement of a relay and of an operator
  - pending messages that relays missed, because they had already read higher ids
  - topics of pending messages without a route
  - parked messages
  - whether a relay of this configuration would wait, because live relays have other
    sinks or routes (see rowrelay run --join)
  - delivered messages older than the retention
  - the database's own backlog: dead rows, undo history or a write-ahead log
  - whether notifications arrive
  - whether sinks can be opened and their endpoints reached

The command changes nothing and sends no message. Its duration doesn't depend on the
size of the table. (A plug-in that doesn't support checks is opened, and may then create
something. On PostgreSQL, one notification wakes the running relays.)

The exit code is 1 if a check fails. A line that begins with "note" describes what
running relays and other clients do at the moment: for example, a transaction is open
for a long time, messages of a topic without a route wait, messages are parked, relays
have not deleted old messages, or a new relay would wait for live ones. A note doesn't
change the exit code, unless you set --strict.`

// sinkTimeout limits the time that a sink may take to open.
const sinkTimeout = 10 * time.Second

func (p program) checkCommand() *cobra.Command {
	flags := &runFlags{program: p}
	report := &checkReport{program: p}
	command := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, connections, tables, rights and sinks",
		Long:  checkHelp,
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			configured, err := report.checkConfig(flags, command)
			if err != nil {
				return err
			}
			for _, source := range configured.Sources {
				report.checkSource(command.Context(), configured, source)
				for _, sink := range configured.SinksOf(source.Name) {
					report.checkSink(command.Context(), source, sink)
				}
			}
			return report.print()
		},
	}
	configFlag(command, &flags.target.config, "check this configuration `file` and everything that it names")
	flags.target.addTableFlags(command)
	command.Flags().StringVar(&flags.sink, "sink", "", "with --database: also check the sink with this `URL`")
	command.Flags().String("claim", "", "with --database: how relays will claim messages, `lanes or rows`")
	command.Flags().BoolVar(&report.strict, "strict", false, "also fail if there are notes")
	jsonFlag(command, &report.json)
	return command
}

// checkConfig reads the configuration file. Without a file, it makes a configuration of
// the table and the sink that the flags name. It adds problems of the file to the
// findings, and returns problems of the flags as an error.
func (c *checkReport) checkConfig(flags *runFlags, command *cobra.Command) (config.Config, error) {
	file := flags.target.config
	if file == "" && flags.sink != "" {
		configured, err := flags.fromFlags(command)
		return configured, usage(err)
	}
	if file == "" {
		source, err := flags.target.resolve(c.program, command)
		if err == nil {
			err = set(command, setting{flag: "claim", name: "claim"}, source.Set)
		}
		return config.Config{Sources: []config.Source{source}}, usage(err)
	}
	configured, err := flags.fromFile(command)
	var problems *config.Problems
	switch {
	case err == nil:
		c.add(sqlstore.Finding{Name: "config", OK: true, Detail: fmt.Sprintf("%s: %d sources, %d sinks, %d routes",
			file, len(configured.Sources), len(configured.Sinks), len(configured.Routes))})
		return configured, nil
	case errors.As(err, &problems):
		for _, problem := range problems.List {
			c.add(sqlstore.Finding{Name: "config", Detail: problems.File + ":" + problem.String()})
		}
	default:
		c.add(sqlstore.Finding{Name: "config", Detail: err.Error()})
	}
	return config.Config{}, nil
}

// checkSource checks a table. After a failed check it skips the checks that depend on it.
func (c *checkReport) checkSource(ctx context.Context, configured config.Config, source config.Source) {
	name := "source " + source.Name + ": "
	db, d, err := openDatabase(ctx, source.Database, pool{})
	if !c.tried(name+"connection", source.Database.String(), err) {
		return
	}
	defer func() {
		if err := db.Close(); err != nil {
			c.tried(name+"disconnection", "", err)
		}
	}()
	claim, options := cmp.Or(source.Claim, storage.ByLanes), storeOptions(source)
	forRelay := options
	options.Operator = true // a relay's store would insert missing rows, but check changes nothing
	store, err := sqlstore.Open(ctx, db, d, options)
	if err != nil && d.Denied(err) { // list all rights that the user lacks, not only the one in err
		for _, found := range sqlstore.Check(ctx, db, d, forRelay, claim) {
			if found.Name == "rights" && !found.OK {
				found.Name = name + found.Name
				c.add(found)
				return
			}
		}
	}
	if !c.tried(name+"schema", "table "+source.Table, explainInCheck(source, d, err)) {
		return
	}
	for _, found := range sqlstore.Check(ctx, db, d, forRelay, claim) {
		// The connection and the schema were checked above, where the hints contain complete
		// commands. The claim mode is checked below: a new relay can change it unless another relay is alive.
		if !slices.Contains([]string{"connection", "schema", "claim"}, found.Name) {
			found.Name = name + found.Name
			c.add(found)
		}
	}
	behind := store.CheckRetention(ctx, max(0, cmp.Or(source.Retention, relay.DefaultRetention)))
	behind.Name = name + behind.Name
	c.add(behind)
	if source.Listen != config.Off && !source.Database.Polled() {
		c.checkNotifications(ctx, name, source, db, d)
	}
	agreed, living, err := store.Living(ctx)
	if err == nil && len(living) > 0 && agreed != claim {
		err = fmt.Errorf("the relay %s claims by %s: %w", living[0].Name, agreed, storage.ErrOtherClaim)
	}
	if c.tried(name+"claim", "by "+string(claim), explainInCheck(source, d, err)) && len(configured.SinksOf(source.Name)) > 0 {
		c.checkOthers(name, configured, source, store, living)
	}
	status, err := store.Status(ctx)
	if err != nil {
		c.tried(name+"messages", "", err)
		return
	}
	c.checkParked(name, status)
	if len(configured.Routes) > 0 {
		c.checkTopics(name, configured, source, status)
	}
}

// explainInCheck is like explain, but its hints don't advise the user to run check.
func explainInCheck(source config.Source, d dialect.Dialect, err error) error {
	if d.Denied(err) {
		return hinted(err, hintRights)
	}
	return explain(source, err)
}

// checkOthers checks whether a relay of this configuration would wait, because live relays of its table have other
// sinks or routes.
func (c *checkReport) checkOthers(name string, configured config.Config, source config.Source, store *sqlstore.Store, living []storage.Member) {
	waits, err := app.StandbyReasonAmong(configured, source, c.kinds, store, living)
	if err != nil {
		c.tried(name+"relays", "", err)
		return
	}
	found := sqlstore.Finding{Name: name + "relays", OK: waits == "", Detail: fmt.Sprintf("%d live; a relay of this configuration would share their messages", len(living))}
	if !found.OK {
		found.Detail = "a relay of this configuration would wait and take no messages: " + waits
		found.Hint = "stop the other relays first, or replace them one by one: the new relay takes over when the last of them has stopped. To share the messages with them, use rowrelay run --join, or join: true in the configuration. rowrelay status lists the relays"
	}
	c.add(found)
}

// checkParked checks whether messages are parked.
func (c *checkReport) checkParked(name string, status storage.Status) {
	found := sqlstore.Finding{Name: name + "parked", OK: true, Detail: "no message is parked"}
	switch {
	case !status.Has(storage.GaugeCounts):
		found.Detail = "the parked messages could not be counted in time"
	case status.Counts[storage.StateError] > 0:
		found.OK, found.Detail = false, countOf(status, storage.StateError)+" messages are parked"
		found.Hint = "rowrelay messages list --state error shows them with their errors, and rowrelay messages requeue sends them again"
	}
	c.add(found)
}

// checkTopics checks whether some of the first 1,000 pending messages wait forever, because their topics have no route.
func (c *checkReport) checkTopics(name string, configured config.Config, source config.Source, status storage.Status) {
	if !status.Has(storage.GaugeTopics) {
		c.tried(name+"topics", "the pending messages could not be read in time", nil)
		return
	}
	var unrouted []string
	for _, topic := range slices.Sorted(maps.Keys(status.Topics)) {
		if !configured.HasRoute(source.Name, topic) {
			unrouted = append(unrouted, fmt.Sprintf("%s (%d)", topic, status.Topics[topic]))
		}
	}
	found := sqlstore.Finding{Name: name + "topics", OK: len(unrouted) == 0, Detail: "the pending messages' topics have routes"}
	if !found.OK {
		found.Detail = "pending messages have no route: " + strings.Join(unrouted, ", ")
		found.Hint = "they wait until a route matches their topic: add one to the configuration. (A message that was sent to a certain sink, by requeue --to or replay --to, needs no route)"
	}
	c.add(found)
}

// checkNotifications listens as a relay does, until it receives the notification that the listener itself sends at the start.
// The finding also reports whether plain INSERTs notify.
func (c *checkReport) checkNotifications(ctx context.Context, name string, source config.Source, db *sql.DB, d dialect.Dialect) {
	listener, err := newListener(source)
	if err == nil {
		listening, stop := context.WithCancel(ctx)
		err = listener.Listen(listening, stop) // ends when the notification arrives, because Listen then calls the function `stop`
		stop()
	}
	if err != nil {
		err = hinted(err, "if you can't fix the cause, let the relay only poll: --listen off, or listen: off in a configuration")
	}
	heard := "relays receive notifications, but plain INSERTs send none (see rowrelay migrate up --notify)"
	if steps, made := migrations.New(db, d, migrations.Options{Table: source.Table}); made == nil {
		if there, _ := steps.Notifies(ctx); there {
			heard = "relays receive notifications, and plain INSERTs send them"
		}
	}
	c.tried(name+"notifications", heard, err)
}

// checkSink makes a sink, opens it without creating anything, and closes it again. A sink that opens without a connection may
// have a method Reach. If so, checkSink calls Reach to check that the destination can be reached.
func (c *checkReport) checkSink(ctx context.Context, source config.Source, to config.Sink) {
	limited, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	sink, err := to.Make(c.kinds)
	if err == nil {
		open := sink.Open
		if checker, ok := sink.(sinks.Checker); ok { // the sink's Open would create missing files or topics
			open = checker.Check
		}
		err = errors.Join(open(limited), sink.Close(limited))
	}
	name := "source " + source.Name + ": sink " + to.Name
	if !c.tried(name, "can be opened", err) {
		return
	}
	if sink, ok := sink.(interface {
		Reach(context.Context) (tried bool, err error)
	}); ok {
		if tried, err := sink.Reach(limited); tried {
			c.tried(name, "can be reached", err)
		}
	}
}

// checkReport holds the findings of rowrelay check or rowrelay plugin check.
type checkReport struct {
	program
	json     bool
	strict   bool // notes count as failures
	findings []checkFinding
}

type checkFinding struct {
	sqlstore.Finding
	Note bool `json:"note,omitempty"` // the check failed, but counts as OK; see notes
}

// notes are the names of findings about what running relays and other clients of the server do at the moment. If such a check
// fails, the finding is printed as a note and counts as OK, unless --strict is set.
var notes = []string{"relays", "retention", "marks", "topics", "parked", "transactions", "transaction list", "history"}

func (c *checkReport) add(f sqlstore.Finding) {
	note := !f.OK && !c.strict && f.Hint != "" && // a query that failed has no hint
		slices.ContainsFunc(notes, func(kind string) bool { return strings.HasSuffix(f.Name, ": "+kind) })
	f.OK = f.OK || note
	c.findings = append(c.findings, checkFinding{f, note})
}

// tried adds a finding, which is OK if err is nil, and reports whether err is nil.
func (c *checkReport) tried(name, detail string, err error) bool {
	if err == nil {
		c.add(sqlstore.Finding{Name: name, OK: true, Detail: detail})
		return true
	}
	f := sqlstore.Finding{Name: name, Detail: err.Error()}
	var explained *explainedError
	if errors.As(err, &explained) {
		f.Detail, f.Hint = explained.error.Error(), explained.hint
	}
	c.add(f)
	return false
}

// print prints the findings. It returns an error if any of them isn't OK.
func (c *checkReport) print() error {
	failed := 0
	var text string
	for _, f := range c.findings {
		switch {
		case f.Note:
			text += "note  " + f.Name
		case f.OK:
			text += "ok    " + f.Name
		default:
			text += "FAIL  " + f.Name
			failed++
		}
		if f.Detail != "" {
			text += ": " + f.Detail
		}
		if f.Hint != "" && (f.Note || !f.OK) {
			text += "\n      " + strings.ReplaceAll(f.Hint, "\n", "\n      ")
		}
		text += "\n"
	}
	var err error
	if c.json {
		err = c.printJSON(map[string]any{"ok": failed == 0, "checks": c.findings})
	} else {
		err = c.program.print(printable(text))
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d checks failed", failed, len(c.findings))
	}
	return err
}
