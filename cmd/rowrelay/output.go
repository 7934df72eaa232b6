package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func jsonFlag(command *cobra.Command, asJSON *bool) {
	command.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

func (p program) print(text string) error {
	_, err := io.WriteString(p.stdout, text)
	return err
}

func (p program) printJSON(value any) error {
	encoder := json.NewEncoder(p.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// printTable prints rows of cells in columns. On a terminal it cuts cells to make the rows fit.
func (p program) printTable(rows [][]string) error {
	if columns := columns(p.stdout); columns > 0 {
		return p.drawTable(rows, columns)
	}
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			separator := "\t"
			if i == len(row)-1 {
				separator = "\n"
			}
			if _, err := fmt.Fprint(table, printable(cell), separator); err != nil {
				return err
			}
		}
	}
	return table.Flush()
}

// printable replaces the control characters in a text, because they could control a terminal.
// It replaces tabs with spaces, because a tab separates the cells of a table.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) && r != '\n' || r == utf8.RuneError {
			return '�'
		}
		return r
	}, text)
}

func shownTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// checkedWriter remembers the first error of a Write, so that a command with incomplete output
// fails. A Write blocks if the output's reader has stopped reading. [checkedWriter.failed] never
// waits for a Write, so the process can still end.
type checkedWriter struct {
	writing sync.Mutex
	to      io.Writer

	mu  sync.Mutex
	err error
}

// failed returns the first error of a Write, or nil.
func (w *checkedWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *checkedWriter) Write(text []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	n, err := w.to.Write(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}
