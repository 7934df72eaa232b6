package dialect

import "errors"

// Busy: deadlock, also of two keys' locks, lock request timed out, update conflict of a snapshot, change
// of a table that a snapshot reads, Azure's service is busy.
func (sqlserver) Busy(err error) bool {
	return hasNumber(err, 1205, sqlserverKeyDeadlock, 1222, 3960, 3961, 40501)
}

// Missing: invalid object name, no such schema.
func (sqlserver) Missing(err error) bool {
	return hasNumber(err, 208, 2760)
}

// Denied: a right to an object, to a column, to make something, to do something,
// to change a table, to drop something.
func (sqlserver) Denied(err error) bool {
	return hasNumber(err, 229, 230, 262, 297, 300, 1088, 3701, 15247)
}

// hasNumber looks for a number of SQL Server's, which the driver's errors tell.
func hasNumber(err error, numbers ...int32) bool {
	var numbered interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &numbered) {
		return false
	}
	for _, number := range numbers {
		if numbered.SQLErrorNumber() == number {
			return true
		}
	}
	return false
}
