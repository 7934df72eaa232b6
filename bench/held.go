package main

import (
	"context"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/table"
)

const heldRows = 1_000_000

// held measures work on a table with a million deferred rows, and work on a table with many
// messages behind a blocked key.
func held(ctx context.Context, s settings, report func(figure.Figure)) error {
	if len(s.up("postgres15")) == 0 {
		return nil
	}
	for _, state := range []string{"scheduled", "error"} {
		if err := beside1M(ctx, s, state, report); err != nil {
			return err
		}
	}
	return stuck(ctx, s, report)
}

func beside1M(ctx context.Context, s settings, state string, report func(figure.Figure)) error {
	name := "with " + count(heldRows) + " " + map[string]string{"scheduled": "scheduled", "error": "parked"}[state] + ": "
	cases := []work{rate(name+"a backlog drained", drained), rate(name+"20 k requeued", requeued), rate(name+"50 k made due", due)}
	if cases = only(cases, s); len(cases) == 0 {
		return nil
	}
	b, err := besides(ctx, func(ctx context.Context, d *table.Database) error { return d.Hold(ctx, state, "later", heldRows) })
	if err != nil {
		return err
	}
	defer b.Close()
	for _, c := range cases {
		f, err := b.measure(ctx, s.rounds, c)
		if err != nil {
			return err
		}
		report(f)
	}
	return nil
}
