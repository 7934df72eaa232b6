package dialect

// Counting is implemented by a dialect whose server, when it starts, counts on
// from the highest id that it finds in the table: it would give out again the
// ids of rows that have left.
type Counting interface {
	// Floor is carried out before rows with ids up to this one leave the table,
	// and is committed before: it sees to it that something stays there with as
	// high an id. It does nothing if there is something already. Ask and After may
	// be apart.
	Floor(table Table, id int64) Steps
}
