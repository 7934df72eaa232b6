package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/migrations"
)

// migrationJSON is a migration as JSON.
type migrationJSON struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at,omitempty"`
}

// report prints migrations, or the text if there is none.
func (m *migrate) report(source config.Source, name string, list []migrations.Migration, otherwise string) error {
	if m.json {
		shown := []migrationJSON{}
		for _, each := range list {
			shown = append(shown, migrationJSON{each.Version, each.Name, each.Applied, orNil(each.AppliedAt)})
		}
		return m.printJSON(map[string]any{"table": source.Table, strings.ReplaceAll(name, " ", "_"): shown})
	}
	if len(list) == 0 {
		return m.print(otherwise + "\n")
	}
	var rows [][]string
	for _, each := range list {
		state := name
		if name == "migrations" {
			state = map[bool]string{true: "applied", false: "pending"}[each.Applied]
		}
		rows = append(rows, []string{source.Table, fmt.Sprint(each.Version), each.Name, state})
	}
	return m.printTable(rows)
}
