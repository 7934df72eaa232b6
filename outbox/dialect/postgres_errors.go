package dialect

import "errors"

// Busy: serialization failure, deadlock, lock not available.
func (postgres) Busy(err error) bool {
	return hasState(err, "40001", "40P01", "55P03")
}

// Missing: undefined table, invalid schema name.
func (postgres) Missing(err error) bool {
	return hasState(err, "42P01", "3F000")
}

func (postgres) Denied(err error) bool {
	return hasState(err, "42501")
}

// hasState looks for an SQLSTATE, which the errors of pgx and of lib/pq tell.
func hasState(err error, states ...string) bool {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return false
	}
	for _, state := range states {
		if coded.SQLState() == state {
			return true
		}
	}
	return false
}
