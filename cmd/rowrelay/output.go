package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

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

// printTable prints rows of cells in columns.
func (p program) printTable(rows [][]string) error {
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
