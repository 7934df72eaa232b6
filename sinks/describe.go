package sinks

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Describe returns the kind's documentation as plain text, for a terminal.
func (k Kind) Describe() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s\n", k.Name, k.Summary)
	if len(k.Schemes) > 0 {
		fmt.Fprintf(&text, "URL schemes: %s\n", strings.Join(k.Schemes, ", "))
	}
	if len(k.Fields) == 0 {
		return text.String()
	}
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, f := range k.Fields {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", f.Name, f.Type, f.bounds(), f.Help)
	}
	_ = table.Flush() // a strings.Builder takes everything
	return text.String()
}

// Markdown returns the table of the kind's settings for its README.
func (k Kind) Markdown() string {
	if len(k.Fields) == 0 {
		return "This sink has no settings.\n"
	}
	var text strings.Builder
	text.WriteString("| Setting | Type | Default and limits | What it does |\n| --- | --- | --- | --- |\n")
	for _, f := range k.Fields {
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, f.bounds(), strings.ReplaceAll(f.Help, "|", `\|`))
	}
	return text.String()
}

// bounds says in a few words which values a field takes.
func (f Field) bounds() string {
	var parts []string
	switch {
	case f.Required:
		parts = append(parts, "required")
	case f.Default != "":
		parts = append(parts, f.Default)
	default:
		parts = append(parts, "none")
	}
	switch {
	case f.Min != "" && f.Max != "":
		parts = append(parts, f.Min+" to "+f.Max)
	case f.Min != "":
		parts = append(parts, "at least "+f.Min)
	case f.Max != "":
		parts = append(parts, "at most "+f.Max)
	}
	if len(f.Choices) > 0 {
		parts = append(parts, "one of "+strings.Join(f.Choices, ", "))
	}
	return strings.Join(parts, "; ")
}
