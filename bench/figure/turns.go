package figure

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// Contender is one of the programs or configurations that are compared.
type Contender struct {
	Name string
	// Turn measures once, and returns the rate or the time.
	Turn func(ctx context.Context) (float64, error)
}

// Turns measures all contenders one after another, and repeats this for several rounds, so a
// phase in which the machine is slow affects all contenders. Each round begins with a different
// contender. Turns returns each contender's values in the order of the rounds.
func Turns(ctx context.Context, rounds int, contenders ...Contender) ([][]float64, error) {
	values := make([][]float64, len(contenders))
	for round := range rounds {
		for i := range contenders {
			at := (round + i) % len(contenders)
			runtime.GC() // frees the previous contender's memory
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

// Ratio returns the median of the rounds' ratios. The two values of a round were measured one
// after another.
func Ratio(values, reference []float64) float64 {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / reference[i]
	}
	return Median(ratios)
}
