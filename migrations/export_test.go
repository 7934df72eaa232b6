package migrations

// AddStep adds a step after the embedded ones, as a later release may do.
func (m *Migrations) AddStep(sql string) {
	m.steps = append(m.steps, step{version: Version + 1, name: "00002_later.sql", sql: sql})
}
