package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
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

// printable keeps control characters, which could play tricks on a terminal,
// out of a table's cell. A tab, which parts the cells, is a blank.
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

// cell is a text from a message in one line of at most so many characters.
func cell(text string, most int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}

func shownTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

func orNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

// shownPayload is a payload for people: text as it is, bytes as base64.
func shownPayload(payload []byte) string {
	switch {
	case payload == nil:
		return "(NULL)"
	case utf8.Valid(payload):
		return string(payload)
	}
	return "base64 of " + strconv.Itoa(len(payload)) + " bytes: " + base64.StdEncoding.EncodeToString(payload)
}
