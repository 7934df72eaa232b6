package dialect

import (
	"regexp"
	"slices"
)

// Busy: deadlock, lock wait timed out, the record has changed since the last
// read (MariaDB), the table was changed meanwhile, an index was made or dropped
// by another; of TiDB, the write was in conflict with another, and the table was
// changed meanwhile; of MySQL 9, the list of transactions can't be shown, as one of
// them is in a statement with bytes that are no text. A timeout takes back its
// statement alone, so who is told of it has to roll back.
func (mysql) Busy(err error) bool {
	return hasMySQLNumber(err, "1213", "1205", "1020", "1412", "1615", "1061", "1091", "8002", "8022", "8028", "9007", "3854")
}

// Missing: no such table, unknown database.
func (mysql) Missing(err error) bool {
	return hasMySQLNumber(err, "1146", "1049")
}

// Denied: to the database, to a command on a table, to a column, to a thing that
// takes a privilege of its own.
func (mysql) Denied(err error) bool {
	return hasMySQLNumber(err, "1044", "1142", "1143", "1227")
}

// Made: there is such a table. Gone: there is no such table.
func (mysql) Made(err error) bool { return hasMySQLNumber(err, "1050") }
func (mysql) Gone(err error) bool { return hasMySQLNumber(err, "1051", "1146", "4092") }

// mysqlError is how both usual drivers begin the text of an error of the server.
var mysqlError = regexp.MustCompile(`(?i)\berror (\d{4})\b`)

func hasMySQLNumber(err error, numbers ...string) bool {
	if err == nil {
		return false
	}
	found := mysqlError.FindStringSubmatch(err.Error())
	return found != nil && slices.Contains(numbers, found[1])
}
