package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/internal/bench/daemon"
	"github.com/rowrelay/rowrelay/internal/bench/figure"
	"github.com/rowrelay/rowrelay/internal/bench/table"
)

// memory runs the rowrelay command, as it is without any setting, on a large
// backlog.
func memory(ctx context.Context, s settings, report func(figure.Figure)) error {
	cases := []memoryCase{{backlog: 1_000_000, payload: 256}, {backlog: 20_000, payload: 64 << 10}}
	if s.long {
		cases = append(cases, memoryCase{backlog: 10_000_000, payload: 256})
	}
	for _, c := range only(cases, s) {
		f, err := c.measure(ctx)
		if err != nil {
			return err
		}
		report(f)
	}
	return nil
}

type memoryCase struct{ backlog, payload int }

func (c memoryCase) String() string {
	return fmt.Sprintf("memory of rowrelay run, %s × %s", count(c.backlog), bytesOf(c.payload))
}

func bytesOf(n int) string {
	if n >= 1<<10 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// measure lets the command drain for a while: its memory is filled within the
// first seconds.
func (c memoryCase) measure(ctx context.Context) (figure.Figure, error) {
	d, err := filled(ctx, table.Servers["postgres15"], table.Messages{Count: c.backlog, Payload: c.payload})
	if err != nil {
		return figure.Figure{}, err
	}
	defer d.Close()
	process, err := daemon.Start(ctx, "run", "--database", d.URL, "--sink", "discard:", "--drain")
	if err != nil {
		return figure.Figure{}, err
	}
	took, err := process.Watch(30 * time.Second)
	peak := float64(process.Peak()) / (1 << 20)
	return figure.Figure{What: c.String(), Value: fmt.Sprintf("%.0f MiB resident at most, within %.0f s", peak, took.Seconds()),
		Goal: "≤ 64 MiB", Met: peak <= 64}, err
}
