package migrations

import "fmt"

// AddStep adds a step after the embedded ones, as a later release may do.
func (m *Migrations) AddStep(sql string) {
	m.steps = append(m.steps, step{version: Version + 1, name: fmt.Sprintf("%05d_later.sql", Version+1), sql: sql})
}
