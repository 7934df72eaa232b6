package config

import (
	"slices"
	"strings"
)

// unknown reports a key that is no setting, and names the ones that are.
func (r *reader) unknown(n *node, e entry, known []string) {
	text := "is no setting here"
	if near := nearest(e.key, known); near != "" {
		text += ": did you mean " + near + "?"
	} else {
		text += ": the settings are " + strings.Join(known, ", ")
	}
	r.report(e.line, e.column, n.child(e.key), text)
}

// suggest ends an error about a name that isn't there.
func suggest(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return ": did you mean " + near + "?"
	}
	return ": there is " + strings.Join(known, ", ")
}

// nearest returns the word that was probably meant, or nothing.
func nearest(word string, known []string) string {
	best, least := "", 3
	for _, candidate := range known {
		if d := distance(word, candidate); d < least && d < len(candidate) {
			best, least = candidate, d
		}
	}
	return best
}

// distance is the number of bytes to insert, remove or change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{change, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
