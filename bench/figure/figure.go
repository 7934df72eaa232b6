// Package figure measures the compared programs alternately, and records the figures that
// docs/performance.md prints.
package figure

import (
	"fmt"
	"slices"
	"strings"
)

// Figure is a measured value in a row of the table of figures.
type Figure struct {
	Row   string `json:"row"`   // the row of the table, such as "drain"
	What  string `json:"what"`  // the measured case, such as "PostgreSQL 15, lanes, kept, 256 B"
	Value string `json:"value"` // the value with its unit
	// Ratio is the ratio of the value to the reference; 0 without a reference. The value and the
	// reference were measured alternately in one run.
	Ratio     float64 `json:"ratio,omitempty"`
	Reference string  `json:"reference,omitempty"` // the reference and its value
	Goal      string  `json:"goal,omitempty"`
	Met       bool    `json:"met,omitempty"`
	On        string  `json:"on"` // the date, the machine and the settings
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

// Median sorts values, and returns their median.
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

// Spread sorts values, and formats their median with the least and the greatest value.
func Spread(values []float64, unit string) string {
	median := Median(values)
	return fmt.Sprintf("%.0f %s (%.0f–%.0f)", median, unit, values[0], values[len(values)-1])
}
