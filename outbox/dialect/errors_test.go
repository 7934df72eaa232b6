package dialect_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func TestErrorsAreRecognised(t *testing.T) {
	t.Parallel()
	postgres, mysql, sqlite := dialect.Postgres(), dialect.MySQL(), dialect.SQLite()
	tests := []struct {
		what string
		is   func(error) bool
		err  error
		want bool
	}{
		{"deadlock", postgres.Busy, state("40P01"), true},
		{"serialization failure, wrapped", postgres.Busy, fmt.Errorf("settle: %w", state("40001")), true},
		{"unique violation", postgres.Busy, state("23505"), false},
		{"undefined table", postgres.Missing, state("42P01"), true},
		{"no right", postgres.Denied, state("42501"), true},
		{"out of range", postgres.Invalid, state("22003"), true},
		{"violated check", postgres.Invalid, state("23514"), true},
		{"disk full", postgres.Invalid, state("53100"), false},
		{"replica identity with a column that isn't published", postgres.Refused, state("42P10"), true},
		{"no replica identity", postgres.Refused, state("55000"), true},
		{"no right is a refusal", postgres.Refused, state("42501"), true},
		{"lock not available", postgres.Refused, state("55P03"), false},
		{"violated check is no refusal", postgres.Refused, state("23514"), false},
		{"statement_timeout", postgres.TimedOut, fmt.Errorf("settle: %w", state("57014")), true},
		{"idle_in_transaction_session_timeout", postgres.TimedOut, state("25P03"), true},
		{"transaction_timeout", postgres.TimedOut, state("25P04"), true},
		{"lock_timeout", postgres.TimedOut, state("55P03"), false},
		{"statement_timeout is no refusal", postgres.Refused, state("57014"), false},
		{"conflict with a transaction on another primary of the group", mysql.Busy, errors.New("Error 3101 (40000): Plugin instructed the server to rollback the current transaction."), true},
		{"max_execution_time", mysql.TimedOut, errors.New("Error 3024 (HY000): Query execution was interrupted, maximum statement execution time exceeded"), true},
		{"max_execution_time, in a sort", mysql.TimedOut, errors.New("Error 1317 (70100): Query execution was interrupted"), true},
		{"max_statement_time", mysql.TimedOut, errors.New("ERROR 1969 (70100): Query execution was interrupted (max_statement_time exceeded)"), true},
		{"innodb_lock_wait_timeout", mysql.TimedOut, errors.New("Error 1205 (HY000): Lock wait timeout exceeded"), false},
		{"impossible date", mysql.Invalid, errors.New("Error 1292 (22007): Incorrect datetime value"), true},
		{"out of range, as go-mysql-org's driver writes it", mysql.Invalid, errors.New("ERROR 1264 (22003): Out of range value for column 'attempts' at row 1"), true},
		{"MariaDB's check", mysql.Invalid, errors.New("Error 4025 (23000): CONSTRAINT `c` failed"), true},
		{"deadlock is no refusal", mysql.Refused, errors.New("Error 1213 (40001): Deadlock found"), false},
		{"safe updates", mysql.Refused, errors.New("Error 1175 (HY000): You are using safe update mode"), true},
		{"no right is a refusal", mysql.Refused, errors.New("Error 1142 (42000): INSERT command denied"), true},
		{"violated check", sqlite.Invalid, errors.New("constraint failed: CHECK constraint failed: c (275)"), true},
		{"locked is no refusal", sqlite.Refused, errors.New("database is locked (5) (SQLITE_BUSY)"), false},
		{"no column", sqlite.Refused, errors.New("table outbox_done has no column named receipt"), true},
		{"no state", postgres.Busy, fmt.Errorf("40001"), false},
		{"no error", postgres.Busy, nil, false},
		{"locked", sqlite.Busy, fmt.Errorf("database is locked (5) (SQLITE_BUSY)"), true},
		{"locked table", sqlite.Busy, fmt.Errorf("database table is locked: outbox"), true},
		{"no table", sqlite.Missing, fmt.Errorf("no such table: outbox"), true},
		{"no error", sqlite.Missing, nil, false},
	}
	for _, test := range tests {
		if got := test.is(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", test.what, got, test.want)
		}
	}
}

type state string

func (s state) Error() string { return "an error with the state " + string(s) }

func (s state) SQLState() string { return string(s) }

// Received recognises a database's error for an existing id, and no other error. If it recognised another
// error, the consumer would skip a message that it has not received.
func TestReceivedRecognisesOnlyAnExistingID(t *testing.T) {
	t.Parallel()
	errs := map[string]error{
		"mysql":     errors.New("Error 1062 (23000): Duplicate entry 'billing-a' for key 'inbox.PRIMARY'"),
		"mariadb":   errors.New("ERROR 1062 (23000): Duplicate entry 'billing-a' for key 'PRIMARY'"),
		"oracle":    errors.New("ORA-00001: unique constraint (APP.SYS_C008) violated"),
		"sqlserver": number(2627),
	}
	others := []error{nil, errors.New("Error 1213 (40001): Deadlock found"), errors.New("Error 1452 (23000): Cannot add a row"),
		errors.New("ORA-00060: deadlock"), number(1205), number(547), state("23505"), errors.New("UNIQUE constraint failed")}
	for _, d := range dialects {
		if want, ok := errs[d.Name()]; ok && !d.Received(want) {
			t.Errorf("%s: %v isn't recognised", d.Name(), want)
		}
		for _, err := range others {
			if d.Received(err) {
				t.Errorf("%s: Received recognises %v as an existing id", d.Name(), err)
			}
		}
	}
}

type oraError int

func (e oraError) Error() string { return "no text" }

func (e oraError) Code() int { return int(e) }

func TestOracleErrorsAreRecognised(t *testing.T) {
	t.Parallel()
	d := dialect.Oracle()
	repeating := d.(dialect.Repeating)
	for what, c := range map[string]struct {
		is   func(error) bool
		err  error
		want bool
	}{
		"deadlock":                   {d.Busy, errors.New("ORA-00060: deadlock detected while waiting for resource"), true},
		"deadlock, without its text": {d.Busy, errors.New("ORA-60 error occur at position: 0"), true},
		"deadlock, by its code":      {d.Busy, fmt.Errorf("settle: %w", oraError(60)), true},
		"in a block":                 {d.Busy, errors.New("ORA-00054: resource busy\nORA-06512: at line 3"), true},
		"not serializable":           {d.Busy, errors.New("ORA-08177: can't serialize access for this transaction"), true},
		"another number":             {d.Busy, errors.New("ORA-00600: internal error"), false},
		"no table":                   {d.Missing, errors.New("ORA-00942: table or view does not exist"), true},
		"no right":                   {d.Denied, errors.New("ORA-01031: insufficient privileges"), true},
		"violated check":             {d.Invalid, errors.New("ORA-02290: check constraint (APP.C) violated"), true},
		"no column":                  {d.Refused, errors.New("ORA-00904: \"RECEIPT\": invalid identifier"), true},
		"no number":                  {d.Denied, errors.New("1031"), false},
		"no error":                   {d.Missing, nil, false},
		"exists already":             {repeating.Made, errors.New("ORA-00955: name is already used by an existing object"), true},
		"a column exists already":    {repeating.Made, errors.New("ORA-01430: column being added already exists in table"), true},
		"doesn't exist":              {repeating.Gone, errors.New("ORA-00942: table or view does not exist"), true},
		"Made of a missing table":    {repeating.Made, errors.New("ORA-00942: table or view does not exist"), false},
	} {
		if got := c.is(c.err); got != c.want {
			t.Errorf("%s: %t, want %t", what, got, c.want)
		}
	}
}

func TestSQLServerErrorsAreRecognised(t *testing.T) {
	t.Parallel()
	d := dialect.SQLServer()
	for _, c := range []struct {
		what string
		is   func(error) bool
		err  error
		want bool
	}{
		{"deadlock", d.Busy, number(1205), true},
		{"deadlock of two keys' locks", d.Busy, number(51205), true},
		{"another failure of a key's lock", d.Busy, number(50000), false},
		{"lock timeout, wrapped", d.Busy, fmt.Errorf("settle: %w", number(1222)), true},
		{"update conflict", d.Busy, number(3960), true},
		{"duplicate key", d.Busy, number(2627), false},
		{"no object", d.Missing, number(208), true},
		{"no schema", d.Missing, number(2760), true},
		{"no right", d.Denied, number(229), true},
		{"no right to create", d.Denied, number(262), true},
		{"violated check", d.Invalid, number(547), true},
		{"no column", d.Refused, number(207), true},
		{"another error", d.Denied, errors.New("229"), false},
		{"no error", d.Missing, nil, false},
	} {
		if got := c.is(c.err); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}

type number int32

func (n number) Error() string { return fmt.Sprintf("an error with the number %d", int32(n)) }

func (n number) SQLErrorNumber() int32 { return int32(n) }

// ReadOnly recognises the errors of read-only servers of each database, for each setting that makes a server read-only.
func TestReadOnlyServersAreRecognised(t *testing.T) {
	t.Parallel()
	mysql := func(text string) error { return errors.New(text) }
	readOnly := map[string][]error{
		"postgres": {state("25006"), standby{}},
		"mysql": {
			mysql("Error 1290 (HY000): The MySQL server is running with the --read-only option so it cannot execute this statement"),
			mysql("Error 1290 (HY000): The MySQL server is running with the --super-read-only option so it cannot execute this statement"),
			mysql("Error 1792 (25006): Cannot execute statement in a READ ONLY transaction."),
			mysql("Error 1836 (HY000): Running in read-only mode"),
		},
		"mariadb":   {mysql("Error 1290 (HY000): The MariaDB server is running with the --read-only option so it cannot execute this statement"), mysql("Error 1836 (HY000): Running in read-only mode")},
		"sqlserver": {number(3906)},
		"oracle":    {errors.New("ORA-16000: database or pluggable database open for read-only access")},
		"sqlite":    nil,
	}
	others := []error{nil, state("42501"), state("40001"), state("0A000"), number(1205), errors.New("ORA-01031: insufficient privileges"),
		errors.New("Error 1290 (HY000): The MySQL server is running with the --secure-file-priv option so it cannot execute this statement"),
		errors.New("attempt to write a readonly database (8)")}
	for _, d := range dialects {
		for _, err := range readOnly[d.Name()] {
			if !d.ReadOnly(err) {
				t.Errorf("%s: %v isn't recognised", d.Name(), err)
			}
		}
		for _, err := range others {
			if d.ReadOnly(err) {
				t.Errorf("%s: ReadOnly recognises %v as the error of a read-only server", d.Name(), err)
			}
		}
	}
}

// standby is the error of a PostgreSQL standby that reads an unlogged table.
type standby struct{}

func (standby) Error() string {
	return "ERROR: cannot access temporary or unlogged relations during recovery (SQLSTATE 0A000)"
}

func (standby) SQLState() string { return "0A000" }
