// Package figure measures contenders in turns and keeps what came out: the
// figures that docs/performance.md prints.
package figure

import (
	"fmt"
	"slices"
	"strings"
)

// Figure is one measured value of one row of the table of figures.
type Figure struct {
	Row   string `json:"row"`   // of the table of figures, such as "drain"
	What  string `json:"what"`  // was measured, such as "PostgreSQL 15, lanes, kept, 256 B"
	Value string `json:"value"` // as a reader sees it, with its unit
	// Ratio is to the reference that was measured in the same run, in turns; 0
	// where there is none.
	Ratio     float64 `json:"ratio,omitempty"`
	Reference string  `json:"reference,omitempty"` // what that is, with its value
	Goal      string  `json:"goal,omitempty"`
	Met       bool    `json:"met,omitempty"`
	On        string  `json:"on"` // date, machine, settings
}

// String is the figure as a line.
func (f Figure) String() string {
	var line strings.Builder
	fmt.Fprintf(&line, "%-12s %-58s %16s", f.Row, f.What, f.Value)
	if f.Reference != "" {
		fmt.Fprintf(&line, "  %5.2f of %s", f.Ratio, f.Reference)
	}
	if f.Goal != "" {
		fmt.Fprintf(&line, "  (goal %s: %s)", f.Goal, map[bool]string{true: "met", false: "NOT met"}[f.Met])
	}
	return line.String()
}

// Median of some values; they are sorted.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// Spread is a median with the least and the greatest value.
func Spread(values []float64, unit string) string {
	median := Median(values)
	return fmt.Sprintf("%.0f %s (%.0f–%.0f)", median, unit, values[0], values[len(values)-1])
}
