package dialect

// kin is a server that speaks PostgreSQL's language and is another one inside:
// its rows lie on several machines, it has neither places of rows (ctid) nor
// numbers of transactions, and nobody can ask it which transactions are open. So
// nothing tells where a row may still appear, and it is claimed by rows only.
//
// Its statements are such that a plain PostgreSQL takes them, too, where the
// tests run them.
type kin struct {
	postgres
	name    string
	product string // as people write it
}

// CockroachDB is the dialect of CockroachDB 24.3 and later, by rows only.
func CockroachDB() Dialect { return kin{name: "cockroachdb", product: "CockroachDB"} }

// YugabyteDB is the dialect of YugabyteDB 2025.1 and later, by rows only.
func YugabyteDB() Dialect { return kin{name: "yugabytedb", product: "YugabyteDB"} }

// Name returns "cockroachdb" or "yugabytedb".
func (k kin) Name() string { return k.name }

// NoLanes implements [RowsOnly].
func (k kin) NoLanes() string {
	return k.product + " doesn't tell which transactions are open, so a relay by lanes could pass over a message that commits late"
}

// Given is asked for by who reads lanes.
func (kin) Given(Table) Query { return Query{SQL: "SELECT 0"} }

// MakeRowIndexes makes none: the tables come with them, as CockroachDB changes
// no index within a transaction.
func (kin) MakeRowIndexes(Table) []Query { return nil }

// DropRowIndexes drops none.
func (kin) DropRowIndexes(Table) []Query { return nil }

// RowIndexes selects how many the tables came with.
func (kin) RowIndexes(Table) Query { return Query{SQL: "SELECT 3"} }

// Begin bounds the wait for locks.
func (kin) Begin(Table) []Query {
	return []Query{{SQL: "SET LOCAL lock_timeout = '3s'"}}
}

// Beat is the other one's without the number of the transaction.
func (kin) Beat(table Table, beat Beat) Steps {
	var a postgresArgs
	return alone(a.query(append(postgresBeat(&a, table, beat), "RETURNING name, 0, ''")...))
}

// Counts counts no further than the limit: there are no statistics to go by.
func (kin) Counts(table Table, limit int) Query {
	var a postgresArgs
	return a.query(
		postgresStates(table),
		"UNION ALL",
		"SELECT 'done', count(*) FROM (SELECT 1 FROM "+table.Done()+" LIMIT "+a.int(limit)+") AS d")
}
