package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/peers"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// peersCase compares rowrelay with peers. Either all the compared systems keep done rows, or all delete done rows.
type peersCase struct {
	server table.Server
	keep   bool
	peers  []peers.Peer
}

func (c peersCase) String() string {
	kept := "deleted"
	if c.keep {
		kept = "kept"
	}
	return c.server.Name + ", " + kept
}

// goal returns the goal for rowrelay's rate, as a multiple of the best peer's rate.
func (c peersCase) goal() float64 {
	if c.keep {
		return 3
	}
	return 1.4
}

const peersPayload = 256

func besidePeers(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, c := range peersCases(s) {
		if err := c.measure(ctx, s.rounds, report); err != nil {
			return err
		}
	}
	return nil
}

func peersCases(s settings) (cases []peersCase) {
	for _, name := range []string{"postgres15", "postgres18"} {
		server := table.Servers[name]
		if server.Missing() || s.servers != "" && !strings.Contains(s.servers, name) {
			continue
		}
		for _, keep := range []bool{true, false} {
			c := peersCase{server: server, keep: keep}
			for _, p := range peers.All {
				if p.Keeps() == keep {
					c.peers = append(c.peers, p)
				}
			}
			cases = append(cases, c)
		}
	}
	return only(cases, s)
}

// measure reports a figure for each peer. The best peer's figure has the lowest ratio, because
// rowrelay's rate is divided by the peer's.
func (c peersCase) measure(ctx context.Context, rounds int, report func(figure.Figure)) error {
	contenders := []figure.Contender{{Name: "rowrelay, " + c.String(), Turn: c.own}}
	for _, p := range c.peers {
		contenders = append(contenders, figure.Contender{Name: p.Name() + ", " + c.String(), Turn: c.other(p)})
	}
	values, err := figure.Turns(ctx, rounds, contenders...)
	if err != nil {
		return err
	}
	for i, p := range c.peers {
		ratio := figure.Ratio(values[0], values[i+1])
		report(figure.Figure{
			What: c.String() + ", by " + p.Name(), Value: figure.Spread(values[0], "/s"),
			Ratio: ratio, Reference: figure.Spread(values[i+1], "/s"),
			Goal: fmt.Sprintf("≥ %.1f", c.goal()), Met: ratio >= c.goal(),
		})
	}
	return nil
}

func (c peersCase) own(ctx context.Context) (float64, error) {
	o := relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: discard.New()}}}
	if !c.keep {
		o.Retention = relay.KeepNothing
	}
	d, err := c.server.Create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return 0, err
	}
	if err := d.Fill(ctx, table.Messages{Count: backlog, Payload: peersPayload}); err != nil {
		return 0, err
	}
	return perSecond(relays.Drain(ctx, d, backlog, o))
}

func (c peersCase) other(p peers.Peer) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		d, err := c.server.Create(ctx)
		if err != nil {
			return 0, err
		}
		defer d.Close()
		if err := peers.Fill(ctx, p, d, backlog, peersPayload); err != nil {
			return 0, err
		}
		return perSecond(peers.Drain(ctx, p, d, backlog, peers.Nothing))
	}
}

func perSecond(took time.Duration, err error) (float64, error) {
	return backlog / took.Seconds(), err
}
