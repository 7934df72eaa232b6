package figure

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// Contender is one of those that are measured against each other.
type Contender struct {
	Name string
	// Turn measures once, and returns the rate or the time.
	Turn func(ctx context.Context) (float64, error)
}

// Turns measures the contenders one after the other, round after round, so that
// a machine that slows down does so for all; each round begins with another one. It
// returns each contender's values, in the order of the rounds.
func Turns(ctx context.Context, rounds int, contenders ...Contender) ([][]float64, error) {
	values := make([][]float64, len(contenders))
	for round := range rounds {
		for i := range contenders {
			at := (round + i) % len(contenders)
			runtime.GC() // what the one before left
			value, err := contenders[at].Turn(ctx)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", contenders[at].Name, err)
			}
			fmt.Fprintf(os.Stderr, "  round %d, %s: %.1f\n", round+1, contenders[at].Name, value)
			values[at] = append(values[at], value)
		}
	}
	return values, nil
}

// Ratio is the median of the rounds' ratios: of a pair that was measured one
// right after the other.
func Ratio(values, reference []float64) float64 {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / reference[i]
	}
	return Median(ratios)
}
