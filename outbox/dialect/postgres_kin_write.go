package dialect

// kinMaxParameters is the protocol's own limit.
const kinMaxParameters = 65535

// Insert has lists of values only: CockroachDB has no arrays of JSON.
func (kin) Insert(table Table, rows []Row) []Query {
	if len(rows) == 0 {
		return nil
	}
	columns := used(postgresColumns, rows)
	return insertParts(rows, kinMaxParameters/len(columns), postgresMaxBytes, func(part []Row) Query {
		return Query{
			SQL:  insertInto(table, columns) + " VALUES " + postgresValues(columns, len(part)),
			Args: arguments(columns, part),
		}
	})
}

// LockKeys locks nothing: by rows there is no order that a lock could keep.
func (kin) LockKeys(Table, []string) []Query { return nil }

// Notify wakes nobody. CockroachDB has no NOTIFY, and YugabyteDB's is off unless
// it was turned on for the whole cluster.
func (kin) Notify(Table) []Query { return nil }
