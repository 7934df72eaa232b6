package main

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// fanoutCase is a backlog of one topic that goes to one or several sinks.
type fanoutCase struct {
	server table.Server
	keep   bool
	sinks  int
}

func (c fanoutCase) String() string {
	kept, sinks := "deleted", "one sink"
	if c.keep {
		kept = "kept"
	}
	if c.sinks > 1 {
		sinks = fmt.Sprintf("%d sinks", c.sinks)
	}
	return fmt.Sprintf("%s, %s, 256 B, %s", c.server.Name, kept, sinks)
}

func fanout(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, server := range s.up("postgres15", "mysql", "mariadb1011", "sqlite") {
		for _, keep := range []bool{true, false} {
			cases := []fanoutCase{{server, keep, 1}, {server, keep, 2}, {server, keep, 3}}
			var contenders []figure.Contender
			for _, c := range cases {
				contenders = append(contenders, figure.Contender{Name: c.String(), Turn: c.rate})
			}
			values, err := figure.Turns(ctx, s.rounds, contenders...)
			if err != nil {
				return err
			}
			for i, c := range cases[1:] {
				f := figure.Figure{What: c.String(), Value: figure.Spread(values[i+1], "/s"), Reference: "one sink " + figure.Spread(values[0], "/s")}
				if f.Ratio = figure.Ratio(values[i+1], values[0]); c.sinks == 2 {
					f.Goal, f.Met = "≥ 0.45", f.Ratio >= 0.45
				}
				report(f)
			}
		}
	}
	return nil
}

// rate returns the rate at which messages are delivered to all sinks, in messages per
// second.
func (c fanoutCase) rate(ctx context.Context) (float64, error) {
	d, err := c.server.Create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return 0, err
	}
	if err := d.Fill(ctx, table.Messages{Count: backlog, Payload: 256}); err != nil {
		return 0, err
	}
	o := relay.Options{Sinks: map[string]relay.SinkOptions{}}
	if !c.keep {
		o.Retention = relay.KeepNothing
	}
	route := relay.Route{Topic: "*"}
	for i := range c.sinks {
		name := fmt.Sprint("sink", i)
		o.Sinks[name] = relay.SinkOptions{Sink: discard.New(), Batch: 500}
		route.Sinks = append(route.Sinks, name)
	}
	o.Routes = []relay.Route{route}
	took, err := relays.Drain(ctx, d, backlog*c.sinks, o)
	return backlog / took.Seconds(), err
}
