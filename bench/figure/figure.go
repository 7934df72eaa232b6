// Package figure measures contenders in turns and records the figures that docs/performance.md
// prints.
package figure

import (
	"fmt"
	"slices"
	"strings"
)

// Figure is a measured value in a row of the table of figures.
type Figure struct {
	Row   string `json:"row"`   // in the table of figures, such as "drain"
	What  string `json:"what"`  // what was measured, such as "PostgreSQL 15, lanes, kept, 256 B"
	Value string `json:"value"` // with its unit
	// Ratio is the ratio to the reference, which was measured in the same run, in turns; 0 without
	// a reference.
	Ratio     float64 `json:"ratio,omitempty"`
	Reference string  `json:"reference,omitempty"` // the reference and its value
	Goal      string  `json:"goal,omitempty"`
	Met       bool    `json:"met,omitempty"`
	On        string  `json:"on"` // date, machine, settings
}

// String returns the figure as a line.
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

// Median returns the median of values, which it sorts.
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

// Spread formats a median with the least and the greatest value.
func Spread(values []float64, unit string) string {
	median := Median(values)
	return fmt.Sprintf("%.0f %s (%.0f–%.0f)", median, unit, values[0], values[len(values)-1])
}
