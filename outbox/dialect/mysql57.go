package dialect

// mysql57 is the dialect of MySQL before 8.0.13. Its statements have no list of
// given rows but a union. It has no expressions for defaults, so that a trigger
// gives them, and checks what it wouldn't check.
//
// Its server keeps the counter of ids in memory, and begins at a start with the
// highest id in the table. So a row stays there, the floor, whose id is at least
// that of each row that has left. It is in lane 64, where nobody reads; it has no
// topic, and is claimed for ever.
type mysql57 struct{ mysql }

// MySQL57 is the dialect of MySQL 5.7.9 and later, up to 8.0.12. Where a server
// is asked, [MySQL] finds it out by itself.
func MySQL57() Dialect { return mysql57{mysql{flavour: flavourMySQL57}} }

// floorLane is beside all others.
const (
	floorLane  = "64"
	floorUntil = "'9999-12-31'"
)

// Floor looks at the id that is the highest, which is given out already: a floor
// of that lasts for as long as it takes to deliver all that there is now.
func (mysql57) Floor(table Table, id int64) Steps {
	table = table.Backquoted()
	hot := table.Hot() + " FORCE INDEX "
	return Steps{
		Ask: mysqlQuery("SELECT GREATEST(" + mysqlID(id) + ", COALESCE((SELECT MAX(id) FROM " + hot + "(id)), 0)) FROM DUAL" +
			"\nWHERE NOT EXISTS (SELECT 1 FROM " + hot + "(PRIMARY) WHERE lane = " + floorLane + " AND id >= " + mysqlID(id) + ")"),
		After: func(ids []int64) []Query {
			floor := mysqlID(ids[0])
			return []Query{
				mysqlTurn(table), // or who has a higher floor, and who a lower one, wait for each other
				mysqlQuery("INSERT INTO " + table.Hot() + " (lane, id, topic, claimed_until) VALUES (" + floorLane + ", " + floor + ", '', " + floorUntil + ")" +
					" ON DUPLICATE KEY UPDATE claimed_until = " + floorUntil),
				mysqlQuery("DELETE FROM " + table.Hot() + " WHERE lane = " + floorLane + " AND id < " + floor),
			}
		},
	}
}

// Given goes by the rows, of which the floor is one: the counter may go back to
// below ids whose transactions were open when the server stopped.
func (mysql57) Given(table Table) Query {
	table = table.Backquoted()
	return mysqlQuery("SELECT GREATEST(" + mysqlHighest(table) + ")")
}

// Observe counts the transactions by a second look at the list, which is the
// same one: none is made within a tenth of a second.
func (d mysql57) Observe(table Table, token string) Steps {
	const trx = "information_schema.innodb_trx"
	return d.observe(table, token, "(SELECT COUNT(*) AS listed, SUM(trx_state = 'LOCK WAIT') AS waiting FROM "+trx+") AS c STRAIGHT_JOIN "+trx+" AS t")
}
