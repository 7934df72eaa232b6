package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/bench/daemon"
	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/table"
)

// memory measures the rowrelay command with default settings on a large backlog.
func memory(ctx context.Context, s settings, report func(figure.Figure)) error {
	cases := []memoryCase{{backlog: 1_000_000, payload: 256}, {backlog: 20_000, payload: 64 << 10}}
	if s.long {
		cases = append(cases, memoryCase{backlog: 10_000_000, payload: 256})
	}
	for _, c := range only(cases, s) {
		f, err := c.measure(ctx, s.rounds)
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

// memoryWatched is how long each command drains. A command's memory reaches its peak within the
// first seconds.
const memoryWatched = 12 * time.Second

// measure runs several commands, one after another, on the same backlog.
func (c memoryCase) measure(ctx context.Context, rounds int) (figure.Figure, error) {
	d, err := filled(ctx, table.Servers["postgres15"], table.Messages{Count: c.backlog, Payload: c.payload})
	if err != nil {
		return figure.Figure{}, err
	}
	defer d.Close()
	var peaks []float64
	for range rounds {
		if left, err := d.Pending(ctx); err != nil {
			return figure.Figure{}, err
		} else if !left {
			break
		}
		peak, err := peakOf(ctx, d)
		if err != nil {
			return figure.Figure{}, err
		}
		peaks = append(peaks, peak)
	}
	value := figure.Spread(peaks, "MiB resident at most")
	return figure.Figure{What: c.String(), Value: fmt.Sprintf("%s, %d commands one after the other", value, len(peaks)),
		Goal: "≤ 64 MiB", Met: figure.Median(peaks) <= 64}, nil
}

// peakOf runs a command, and returns its peak memory in MiB.
func peakOf(ctx context.Context, d *table.Database) (float64, error) {
	process, err := daemon.Start(ctx, "run", "--database", d.URL, "--sink", "discard:", "--drain")
	if err != nil {
		return 0, err
	}
	_, err = process.Watch(memoryWatched)
	return float64(process.Peak()) / (1 << 20), err
}
