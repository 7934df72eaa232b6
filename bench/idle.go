package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/cpu"
	"github.com/rowrelay/rowrelay/bench/daemon"
	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// idleTime is the length of a turn. In this time a relay renews its leases five times and
// cleans up once.
const idleTime = 10 * time.Second

// idler is a relay that has nothing to deliver, or the server without a relay.
type idler struct {
	name  string
	claim string // the claim mode that the tables are made for; empty: any
	// start starts the idler. It returns the idler's process id, or 0 if the idler runs in this
	// process.
	start func(ctx context.Context, d *table.Database) (pid int, stop func() error, err error)
}

// idle measures the CPU of an idle relay and its database, minus the CPU of the database without a
// relay.
func idle(ctx context.Context, s settings, report func(figure.Figure)) error {
	program, err := daemon.Program()
	if err != nil {
		return err
	}
	for _, server := range s.up("postgres15", "postgres18", "mysql", "mariadb1011", "sqlite") {
		if !strings.Contains(server.Name, s.only) {
			continue
		}
		if err := idleOn(ctx, server, s.rounds, idlers(server, program), report); err != nil {
			return err
		}
	}
	return nil
}

func idlers(server table.Server, program string) []idler {
	all := []idler{
		{"no relay", "", func(context.Context, *table.Database) (int, func() error, error) {
			return 0, func() error { return nil }, nil
		}},
		{"lanes", "", idleRelay(storage.ByLanes, false)},
		{"rows", "rows", idleRelay(storage.ByRows, false)},
	}
	if server.Dialect.Name() == "postgres" {
		all = append(all, idler{"lanes, listening", "", idleRelay(storage.ByLanes, true)})
	}
	return append(all, idler{"rowrelay run", "", idleDaemon(program)})
}

func idleOn(ctx context.Context, server table.Server, rounds int, all []idler, report func(figure.Figure)) error {
	var contenders []figure.Contender
	for _, i := range all {
		contenders = append(contenders, figure.Contender{Name: server.Name + ", " + i.name, Turn: func(ctx context.Context) (float64, error) { return i.turn(ctx, server) }})
	}
	values, err := figure.Turns(ctx, rounds, contenders...)
	if err != nil {
		return err
	}
	alone := figure.Median(values[0])
	for n, i := range all[1:] {
		used := figure.Median(values[n+1])
		report(figure.Figure{
			What: server.Name + ", " + i.name, Value: fmt.Sprintf("%.2f %% of a core (without a relay %.2f %%)", max(0, used-alone), alone),
			Goal: "< 1 %", Met: used-alone < 1,
		})
	}
	return nil
}

// turn returns the CPU of all processes together, in percent of a core.
func (i idler) turn(ctx context.Context, server table.Server) (percent float64, err error) {
	d, err := server.Create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := d.MigrateFor(ctx, i.claim); err != nil {
		return 0, err
	}
	pid, stop, err := i.start(ctx, d)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var more []int
	if pid != 0 {
		more = append(more, pid)
	}
	meter, err := cpu.Of(ctx, d, more...)
	if err != nil {
		return 0, err
	}
	<-time.After(3 * time.Second) // by then the relay has its lanes, and the database has processed the new tables
	before, err := meter.Used()
	if err != nil {
		return 0, err
	}
	<-time.After(idleTime)
	after, err := meter.Used()
	return 100 * (after - before).Seconds() / idleTime.Seconds(), err
}

func idleRelay(claim storage.Claim, listening bool) func(context.Context, *table.Database) (int, func() error, error) {
	return func(ctx context.Context, d *table.Database) (int, func() error, error) {
		o := telling(func(string) {})
		o.Claim = claim
		if listening {
			listener, err := relaypgx.NewListener(d.URL, relaypgx.ListenerOptions{})
			if err != nil {
				return 0, nil, err
			}
			o.Listener = listener
		}
		_, stop, err := relays.Start(ctx, d, o)
		return 0, stop, err
	}
}

func idleDaemon(program string) func(context.Context, *table.Database) (int, func() error, error) {
	return func(ctx context.Context, d *table.Database) (int, func() error, error) {
		command := exec.Command(program, "run", "--database", urlOf(d), "--sink", "discard:")
		command.Stderr = os.Stderr
		if err := command.Start(); err != nil {
			return 0, nil, err
		}
		return command.Process.Pid, func() error {
			return errors.Join(command.Process.Signal(os.Interrupt), command.Wait())
		}, nil
	}
}

// urlOf returns the database's URL for the rowrelay command.
func urlOf(d *table.Database) string {
	if d.URL != "" {
		return d.URL
	}
	file, err := url.Parse(d.DSN)
	if err != nil {
		return d.DSN
	}
	return "sqlite:" + file.Path
}
