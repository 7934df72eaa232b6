package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/hand"
	"github.com/rowrelay/rowrelay/bench/table"
)

// had lists the rates that other handwritten loops reached, as ranges, in thousands of messages per
// second. The other loops were optimised for speed alone and ran on another machine with two cores,
// with payloads of 256 B and batches of 500 to 1,000.
type had struct{ kept, deleted, marked [2]int }

var loopsHad = map[string]had{
	"postgres15":  {kept: [2]int{146, 160}, deleted: [2]int{170, 232}, marked: [2]int{53, 78}},
	"mysql":       {kept: [2]int{49, 49}, deleted: [2]int{83, 94}, marked: [2]int{24, 32}},
	"mariadb1011": {kept: [2]int{72, 78}, deleted: [2]int{159, 198}, marked: [2]int{21, 24}},
}

// loopCase is a handwritten loop. Its goal is nine tenths of the lowest rate in its range in loopsHad. If the loop
// were much slower, the ratios of the scene drain, which uses the loop as its reference, would look too good.
type loopCase struct {
	drainCase
	mark   bool // marks leased rows in place instead of moving them
	native bool // uses pgx instead of database/sql
	had    [2]int
}

func (c loopCase) String() string {
	name := c.drainCase.String()
	if c.mark {
		name = strings.Replace(name, "kept", "marked", 1)
	}
	if c.native {
		name += ", through pgx"
	}
	return name
}

// loops measures the loops of all servers, one server after another.
func loops(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, name := range []string{"postgres15", "mysql", "mariadb1011"} {
		if len(s.up(name)) == 0 {
			continue
		}
		if err := inTurns(ctx, s, only(loopCases(name), s), report); err != nil {
			return err
		}
	}
	return nil
}

func loopCases(name string) (cases []loopCase) {
	for _, batch := range []int{500, 1000} {
		deleted := drainCase{server: table.Servers[name], payload: 256, batch: batch}
		kept, rows := deleted, deleted
		kept.keep, rows.keep, rows.rows = true, true, true
		had := loopsHad[name]
		cases = append(cases, loopCase{drainCase: kept, had: had.kept}, loopCase{drainCase: deleted, had: had.deleted},
			loopCase{drainCase: rows, mark: true, had: had.marked}, loopCase{drainCase: rows})
		if kept.server.Dialect.Name() == "postgres" {
			cases = append(cases, loopCase{drainCase: kept, native: true, had: had.kept}, loopCase{drainCase: deleted, native: true, had: had.deleted})
		}
	}
	return cases
}

func inTurns(ctx context.Context, s settings, cases []loopCase, report func(figure.Figure)) error {
	var contenders []figure.Contender
	for _, c := range cases {
		contenders = append(contenders, figure.Contender{Name: c.String(), Turn: c.rate(c.drain)})
	}
	values, err := figure.Turns(ctx, s.rounds, contenders...)
	if err != nil {
		return err
	}
	for i, c := range cases {
		report(c.figure(values[i]))
	}
	return nil
}

// figure returns a figure of the loop. The figure has a goal if the case has rates of other loops.
func (c loopCase) figure(values []float64) figure.Figure {
	f := figure.Figure{What: c.String(), Value: figure.Spread(values, "/s")}
	if least := float64(c.had[0]) * 1000; least > 0 {
		f.Ratio = figure.Median(values) / least
		f.Reference = fmt.Sprintf("%d,000–%d,000 /s elsewhere", c.had[0], c.had[1])
		f.Goal, f.Met = "≥ 0.90", f.Ratio >= 0.9
	}
	return f
}

func (c loopCase) drain(ctx context.Context, d *table.Database) (time.Duration, error) {
	return c.byLoop(ctx, d, hand.Options{Keep: c.keep, Rows: c.rows, Mark: c.mark, Native: c.native})
}
