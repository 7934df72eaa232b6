package dialect

import "strconv"

// postgresGivens selects rows that are given as arrays. A column whose values
// are all the same is given once: most batches are all done, at their first
// attempt, and an array costs as much as the row's own change does.
type postgresGivens struct {
	args     *postgresArgs
	arrays   string
	names    string
	selected string
}

func (c *postgresGivens) array(name, placeholder string) {
	if c.arrays != "" {
		c.arrays, c.names = c.arrays+", ", c.names+", "
	}
	c.arrays, c.names = c.arrays+placeholder, c.names+name
	c.sel(name)
}

func (c *postgresGivens) sel(expression string) {
	if c.selected != "" {
		c.selected += ", "
	}
	c.selected += expression
}

func (c *postgresGivens) ints(name, as string, values []int64) {
	addColumn(c, name, as, values, func(v int64) string { return strconv.FormatInt(v, 10) })
}

func (c *postgresGivens) bools(name string, values []bool) {
	addColumn(c, name, "boolean", values, strconv.FormatBool)
}

func (c *postgresGivens) texts(name string, values []string) {
	addColumn(c, name, "text", values, quotedItem)
}

func addColumn[T comparable](c *postgresGivens, name, as string, values []T, form func(T) string) {
	if allEqual(values) {
		c.sel(c.args.add(values[0], as) + " AS " + name)
		return
	}
	c.array(name, c.args.add(postgresArray(values, form), as+"[]"))
}

func allEqual[T comparable](values []T) bool {
	for _, value := range values {
		if value != values[0] {
			return false
		}
	}
	return true
}

func (c *postgresGivens) sql() string {
	return "SELECT " + c.selected + " FROM unnest(" + c.arrays + ") AS u (" + c.names + ")"
}
