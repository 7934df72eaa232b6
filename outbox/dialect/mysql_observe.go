package dialect

// Observe reads InnoDB's list of transactions, which takes the right PROCESS.
//
// A transaction has a number only once it writes, or locks as if it were to: so
// it locks a row that there isn't, which at READ COMMITTED locks nothing. An
// insert takes its id just before its transaction's first number.
//
// The list is made anew only if nobody has read it for a tenth of a second. So
// it counts only if it shows the transaction that reads it, with this very
// statement. It also isn't complete beyond 16 MB, of which one transaction takes
// about a kilobyte, and those that wait for locks may take more.
//
// The list has other numbers for those that have none. Those that have one, but
// haven't written and are in no statement either, will take their ids later:
// programs that hold locks on rows for long hold nothing up.
func (d mysql) Observe(table Table, token string) Steps {
	return Steps{
		Do: []Query{mysqlQuery("SELECT value FROM " + table.Backquoted().Settings() + " WHERE name = '' FOR UPDATE")},
		Ask: mysqlQuery("SELECT CASE WHEN LOCATE('" + token + "', trx_query) > 0 THEN 'number' WHEN trx_state = 'COMMITTING' THEN 'ending' ELSE 'open' END, CAST(trx_id AS CHAR)" +
			"\nFROM (SELECT t.*, COUNT(*) OVER () AS listed, SUM(trx_state = 'LOCK WAIT') OVER () AS waiting" +
			"\n    FROM information_schema.innodb_trx AS t) AS t" +
			"\nWHERE listed < 5000 AND waiting < 1000 AND trx_id > 0 AND trx_id < 281474976710656" +
			"\n    AND (trx_rows_modified > 0 OR trx_tables_in_use > 0 OR trx_mysql_thread_id = 0 OR LOCATE('" + token + "', trx_query) > 0)" +
			"\nUNION ALL SELECT 'all', ''" +
			"\nUNION ALL SELECT 'server', " + d.server()),
	}
}

// server tells one server from another. MariaDB has no number for all times.
func (d mysql) server() string {
	if d.isMariaDB() {
		return "CONCAT(@@hostname, ':', @@port, '/', @@server_id)"
	}
	return "CONCAT(@@hostname, ':', @@port, '/', @@server_uuid)"
}
