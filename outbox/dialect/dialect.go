// Package dialect contains, for each database, the SQL of producers and consumers, the names of
// the tables, and the code that classifies errors and identifies the server. It imports no
// driver: a dialect turns typed arguments into a [Query], and the caller runs it on its own
// connection. The SQL of relays is in relay/sqlstore, one folder for each database.
//
// dialect.go has the parts that all databases share: the interface, the names of the tables, and
// the check that a database and its dialect are of the same kind. insert.go builds INSERTs.
// Each database has one file, ordered by topic: writing, the inbox, the tables, errors, the server.
package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Dialect builds the statements of one database and classifies its errors. It runs no
// statements. Its methods may be called concurrently.
type Dialect interface {
	// Name returns the dialect's name, which ByName accepts.
	Name() string

	// Insert returns the statements that insert the rows. They assign ascending ids in
	// the order of the rows. Insert normally returns one statement, and more only if
	// the database's limits require it.
	Insert(table Table, rows []Row) []Query

	// InsertIDs inserts message ids into the table of ids, each with the token, and skips
	// ids that the table already contains. The number of affected rows is the number of new
	// ids. On some databases the statement fails instead if one of the ids already exists;
	// Received recognises this error. InsertIDs waits for open transactions that have
	// inserted the same ids.
	InsertIDs(table Table, ids []string, token int64) []Query

	// DeleteIDs deletes the given ids that were inserted with the token. With token 0 it
	// deletes all given ids, whatever their tokens are.
	DeleteIDs(table Table, ids []string, token int64) []Query

	// Cancel deletes a scheduled message unless it is due within the given duration (ahead). The
	// first statement deletes it from the pending table, the second from the held table. The caller
	// runs them in this order, because a relay moves a scheduled message from the pending table to
	// the held table, and back only when the message is due. The caller runs the second statement
	// only if the first affects no row. Neither statement locks other rows or waits for a relay's
	// send to end.
	//
	// On some databases the caller first runs the query `find`, which takes no locks. It
	// selects the index (in `deletes`) of the statement to run first, the row's lane, and
	// the row's id. The caller puts lane and id before the arguments of each statement.
	// If this query returns no row, no message with this id can be cancelled. On the
	// other databases find.SQL is empty.
	Cancel(table Table, messageID string, ahead time.Duration) (find Query, deletes [2]Query)

	// LockKeys returns statements that make other writers of these keys wait until the
	// transaction ends. All callers take the locks in the same order, so that they can't
	// deadlock. LockKeys returns no statements if the database allows only one writer at
	// a time.
	LockKeys(table Table, keys []string) []Query

	// Notify returns the statement that wakes listening relays when the transaction
	// commits, or none if the database has no notifications.
	Notify(table Table) []Query

	// Written selects all messages, in the order in which they were inserted, for tests. The
	// columns are message id, topic, key, payload, whether payload is NULL, payload_text,
	// headers, available_at and expires_at in the format WrittenTime, and priority. Key,
	// payload, payload_text, headers and the two times can be NULL.
	Written(table Table) Query

	// Receive inserts a message's id into an inbox for this consumer and affects one row.
	// If the id already exists, Receive affects no row, or fails with an error that
	// Received recognises. Receive waits for an open transaction that has inserted the
	// same id.
	Receive(table Table, consumer, messageID string) Query

	// Received reports whether Receive failed because the id already exists. The
	// transaction can continue after this error, except on SQL Server with XACT_ABORT on.
	Received(err error) bool

	// PurgeReceived deletes ids that this consumer received longer than `window` ago. It
	// deletes at most `limit` ids.
	PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query

	// InboxVersion selects the version of an inbox as text.
	InboxVersion(table Table) Query

	// SchemaVersion selects the version of an outbox's tables as text.
	SchemaVersion(table Table) Query

	// FixedRows returns the rows that the tables must always contain.
	FixedRows(table Table) []FixedRows

	// MakeRowIndexes creates the indexes that claiming by rows needs, unless they exist.
	// DropRowIndexes drops all of them.
	MakeRowIndexes(table Table) []Query
	DropRowIndexes(table Table) []Query

	// RowIndexes selects how many of the indexes for claiming by rows exist: at most
	// RowIndexCount.
	RowIndexes(table Table) Query

	// The methods below classify an error of any driver. They return false for nil.

	// Busy reports whether the database refused the statement only temporarily. The
	// statement changed nothing.
	Busy(err error) bool

	// TimedOut reports whether the server ended the statement or its transaction because of
	// a time limit, or because a user cancelled it. The statement changed nothing.
	TimedOut(err error) bool

	// Missing reports whether the statement failed because a table or a schema doesn't exist.
	Missing(err error) bool

	// Denied reports whether the statement failed because the database user lacks a privilege.
	Denied(err error) bool

	// Invalid reports whether the database refused a value of a row and would refuse the
	// value again.
	Invalid(err error) bool

	// Refused reports whether the database refused the statement and would also refuse it
	// with other values. It also returns true for a Denied error.
	Refused(err error) bool

	// ReadOnly reports whether the server accepts no writes, because it is a standby, or the
	// old primary after a switchover. [Redial] then lets the pool connect to another server.
	ReadOnly(err error) bool
}

// Redial closes the idle connections of a pool, so that the next statement opens a new connection. After a
// switchover the host name resolves to the new primary, but open connections stay on the old server.
func Redial(ctx context.Context, db *sql.DB) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // db.Conn waits if other goroutines use all connections
	defer cancel()
	for range db.Stats().Idle {
		conn, err := db.Conn(ctx)
		if err != nil {
			return
		}
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}
}

// all returns every dialect.
func all() []Dialect {
	return []Dialect{Postgres(), MySQL(), MariaDB(), Oracle(), SQLServer(), SQLite()}
}

// ByName returns the dialect with the given name: postgres, mysql, mariadb, oracle, sqlserver or sqlite.
func ByName(name string) (Dialect, error) {
	var names []string
	for _, d := range all() {
		if d.Name() == name {
			return d, nil
		}
		names = append(names, d.Name())
	}
	return nil, fmt.Errorf("database dialect %q is not known: it must be %s or %s", name, strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
}

// Query is one statement and its arguments, ready for any database/sql driver
// of the dialect's database.
type Query struct {
	SQL  string
	Args []any
}

// RowIndexCount is the number of indexes that claiming by rows needs.
const RowIndexCount = 3

// WrittenTime is the layout of the times that Written selects. They are in UTC, and
// may have a fraction of a second at the end.
const WrittenTime = "2006-01-02 15:04:05"

// inboxVersion selects 1, the only version, and fails if the table doesn't exist.
func inboxVersion(table Table) Query {
	return Query{SQL: "SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM " + table.Inbox + " WHERE consumer IS NULL"}
}

// Fitting is implemented by a dialect whose servers differ in their capabilities. The
// code that opens a table queries the server and uses the variant for that server.
type Fitting interface {
	// Server returns a query that selects facts about the server. Each row has a name, in
	// lower case, and a value. The query needs no table and no privilege. Server also
	// returns a trial, which locks rows of the table. The trial shows whether a SELECT can
	// skip rows that another transaction has locked, instead of waiting for them. The trial
	// is nil if all supported versions of the server can skip locked rows.
	Server(table Table) (facts Query, trial *Trial)

	// Fit returns the variant for a server with these facts. If no variant fits, the
	// error names the server's version and the requirement.
	Fit(server Server) (Fit, error)
}

// Trial is a test with two transactions. Hold runs in the first transaction. While the
// first transaction is open, Pass runs in the second. Both queries are SELECTs of one
// column.
type Trial struct {
	// Begin runs first in both transactions. It limits waits for locks to about a second, so
	// that a server that can't skip locked rows returns an error and doesn't wait for Hold's lock.
	// End runs last. It resets the limit if the limit is a setting of the session.
	Begin, End []Query

	Hold Query  // locks one row
	Pass Query  // selects that row and another one, but skips locked rows
	Want string // the value of the unlocked row, as text; Pass must select only this row
}

// Server has the results of [Fitting.Server].
type Server struct {
	Facts map[string]string // the selected facts, by name
	Skips bool              // whether the trial succeeded; true if there is no trial
}

// Fit is the variant of a dialect for one server.
type Fit struct {
	Dialect Dialect

	// Unordered reports that several servers assign ids independently. An open transaction
	// can then commit a row whose id is lower than the ids of committed rows, and a relay
	// can't observe when all such transactions have ended.
	Unordered bool

	// Notes are facts for the operator, shown by the check command and in the log.
	Notes []Note
}

// Note is one fact about a server.
type Note struct {
	Name   string // what the fact is about, in one or two words
	OK     bool
	Detail string // the fact
	Hint   string // if OK is false: what the operator can do
}

// FixedRows are rows that a migration writes once: the lanes, and rows that serve as locks.
// If these rows were missing, relays would miss messages and report no error.
type FixedRows struct {
	Table string
	Want  int   // the number of rows that must exist
	Count Query // selects the number of rows that exist
	Fill  Query // inserts the missing rows and doesn't change the others
}

// Repeating is implemented by a dialect whose database commits each CREATE, ALTER and DROP
// immediately. If a migration fails, its earlier statements stay in effect, and the migration
// is run again from its beginning.
type Repeating interface {
	// Made reports whether a statement failed because the object that it creates already
	// exists. Gone reports whether a statement failed because the object that it drops
	// doesn't exist.
	Made(err error) bool
	Gone(err error) bool
}

// DefaultTable is the default name of an outbox table.
const DefaultTable = "outbox"

const (
	// PostgreSQL truncates longer names, and the other databases have higher limits. The
	// longest suffix that is added to a table's name is "_schema_version_id_seq", for the
	// sequence of the version table.
	maxIdentifier = 63
	maxName       = 40
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Table has the names of an outbox's tables, or of an inbox, as [ParseTable] derives them
// from one name. All names except Schema, Name and Channel can be put into a statement
// unchanged: they include the schema, if there is one, and quotes where the database needs
// quotes. Tables can be compared with ==.
type Table struct {
	Schema string // unquoted; empty for the connection's default schema
	Name   string // unquoted, without the schema

	Pending  string // new messages, written by producers, and scheduled messages until a relay moves them to Held
	Held     string // messages that are scheduled, wait for a retry, or are parked
	Done     string // delivered messages, until the retention deletes them
	IDs      string // ids of messages from Writers that check for duplicates
	Lanes    string // lanes and their leases
	Relays   string // running relays
	Settings string // settings of the outbox, such as the schema's version
	Controls string // active pauses and limits, set by operators
	Actions  string // the log of operators' actions
	Messages string // a view over all messages with their state

	Epoch     string // PostgreSQL: the server empties this table when commits may have been lost
	LaneLocks string // MySQL and MariaDB: rows that relays lock to lease lanes and to settle messages
	KeyLocks  string // MySQL and MariaDB: rows that writers of a key lock

	SchemaVersion string // the table in which goose records the applied migrations

	// Inbox is the only table of an inbox: the ids of received messages.
	Inbox string

	// Channel is the name of the channel on which relays listen for notifications. It has no
	// schema, so that a producer that names the schema and a relay that uses search_path use
	// the same channel. It isn't quoted; a statement that uses it as an identifier quotes it.
	Channel string

	prefix string // the schema, quoted if needed, and a dot; empty without a schema
	ticked bool   // whether names are quoted with backquotes, as on MySQL
}

// ParseTable reads a name of the form "table" or "schema.table". Both parts are
// case-sensitive, consist of the letters A to Z and a to z, digits and underscores, and
// don't begin with a digit. A table's name has at most 40 bytes, and a schema's name at
// most 63.
func ParseTable(text string) (Table, error) {
	schema, name, qualified := strings.Cut(text, ".")
	if !qualified {
		schema, name = "", text
	}
	parts := []struct {
		what, name string
		limit      int
	}{{"table", name, maxName}, {"schema", schema, maxIdentifier}}
	if !qualified {
		parts = parts[:1]
	}
	for _, part := range parts {
		switch {
		case part.name == "":
			return Table{}, fmt.Errorf("table %q: the %s's name must not be empty", text, part.what)
		case len(part.name) > part.limit:
			return Table{}, fmt.Errorf("table %q: the %s's name must have at most %d bytes, and has %d", text, part.what, part.limit, len(part.name))
		case !identifier.MatchString(part.name):
			return Table{}, fmt.Errorf("table %q: the %s's name must consist of the letters A to Z and a to z, digits and underscores, and not begin with a digit", text, part.what)
		}
	}
	return Table{Schema: schema, Name: name}.named(), nil
}

// named sets all other names, derived from Schema and Name.
func (t Table) named() Table {
	if t.Schema != "" {
		t.prefix = t.quoted(t.Schema) + "."
	}
	pending := t.prefix + t.quoted(t.Name)
	t.Pending, t.Inbox, t.Channel = pending, pending, "rowrelay_"+t.Name
	t.Held, t.Done, t.Lanes, t.Relays = t.Index("held"), t.Index("done"), t.Index("lanes"), t.Index("relays")
	t.IDs, t.Controls, t.Actions = t.Index("ids"), t.Index("controls"), t.Index("actions")
	t.Settings, t.Messages, t.Epoch = t.Index("settings"), t.Index("messages"), t.Index("epoch")
	t.LaneLocks, t.KeyLocks, t.SchemaVersion = t.Index("lane_locks"), t.Index("key_locks"), t.Index("schema_version")
	return t
}

// Backquoted returns the table with its names in the backquotes of MySQL and MariaDB.
func (t Table) Backquoted() Table {
	t.ticked = true
	return t.named()
}

// String returns the name in the form that ParseTable reads.
func (t Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// Index returns the name of an index, or of another object that belongs to the table. The
// name includes the schema, as in DROP INDEX. The suffix has at most 22 bytes.
func (t Table) Index(suffix string) string { return t.prefix + t.quoted(t.Name+"_"+suffix) }

// IndexName returns the name that Index returns, but without the schema. Statements such as
// PostgreSQL's CREATE INDEX need this form, because an index is always in its table's schema.
func (t Table) IndexName(suffix string) string { return t.quoted(t.Name + "_" + suffix) }

// Beside qualifies the name with the table's schema, if the table has a schema. The name must not need quotes.
func (t Table) Beside(name string) string { return t.prefix + name }

// quoted returns a name in the form that statements need: in backquotes for MySQL, and otherwise
// in double quotes if the name needs them. ParseTable has checked that the name contains no
// quotes.
func (t Table) quoted(name string) string {
	switch {
	case t.ticked:
		return "`" + name + "`"
	case name != strings.ToLower(name) || slices.Contains(reserved, name):
		return `"` + name + `"`
	}
	return name
}

// reserved lists the words that PostgreSQL, SQLite, SQL Server or Oracle accept as the name
// of a table or schema only in quotes. It leaves out "public", which is a schema on PostgreSQL
// and a role on SQL Server.
var reserved = strings.Fields(`
	access add all alter analyse analyze and any array as asc asymmetric audit
	authorization autoincrement backup begin between binary both break browse bulk
	by cascade case cast char check checkpoint close cluster clustered coalesce
	collate collation column comment commit compress compute concurrently constraint
	contains containstable continue convert create cross current current_catalog
	current_date current_role current_schema current_time current_timestamp
	current_user cursor database date dbcc deallocate decimal declare default
	deferrable delete deny desc disk distinct distributed do double drop dump else
	end errlvl escape except exclusive exec execute exists exit external false fetch
	file fillfactor float for foreign freetext freetexttable freeze from full
	function goto grant group having holdlock identified identity identity_insert
	identitycol if ilike immediate in increment index initial initially inner insert
	integer intersect into is isnull join key kill lateral leading left level like
	limit lineno load localtime localtimestamp lock long maxextents merge minus mode
	modify national natural noaudit nocheck nocompress nonclustered not nothing
	notnull nowait null nullif number of off offline offset offsets on online only
	open opendatasource openquery openrowset openxml option or order outer over
	overlaps pctfree percent pivot placing plan precision primary print prior proc
	procedure raiserror raw read readtext reconfigure references rename replication
	resource restore restrict return returning revert revoke right rollback row
	rowcount rowguidcol rowid rownum rows rule save schema securityaudit select
	semantickeyphrasetable semanticsimilaritydetailstable semanticsimilaritytable
	session session_user set setuser share shutdown similar size smallint some start
	statistics successful symmetric synonym sysdate system_user table tablesample
	textsize then to top trailing tran transaction trigger true truncate try_convert
	tsequal uid union unique unpivot update updatetext use user using validate
	values varchar varchar2 variadic varying verbose view waitfor when whenever
	where while window with within writetext`)

// WrongKind is the error for a dialect that doesn't fit the kind of the database.
type WrongKind struct {
	Server string // the kind of the database, such as "SQL Server"
	Given  string // the Name of the dialect that was passed
	Right  string // the dialect to pass, such as "SQLServer", which is both a function of this package and a constant of package rowrelay
	Err    error  // the database's error, if there is one
}

// Error returns a text for callers that passed a dialect. For callers that name the kind of the
// database in another form, such as a URL, build another text from the fields.
func (w *WrongKind) Error() string {
	text := fmt.Sprintf("the database is %s, but the dialect is %s: pass dialect.%s()", w.Server, w.Given, w.Right)
	if w.Err != nil {
		text += ": " + w.Err.Error()
	}
	return text
}

func (w *WrongKind) Unwrap() error { return w.Err }

// Explain returns a [WrongKind] that wraps err if the database is of another kind than the
// dialect, because err itself is then a misleading error about our SQL. Otherwise Explain
// returns err. It queries the database, so use it only for errors at startup.
func Explain(ctx context.Context, db *sql.DB, d Dialect, err error) error {
	if err == nil {
		return nil
	}
	server, fits := kindOf(ctx, db), d.Name()
	if server.name == "" || strings.Contains(server.dialects, " "+fits+" ") {
		return err
	}
	return &WrongKind{server.name, fits, server.right, err}
}

// kind describes one kind of database. The field dialects has the names of the dialects
// that fit, each between spaces, and right is the Right of a WrongKind error.
type kind struct {
	name, dialects, right string
}

// kindOf tries queries that only some kinds of database understand, until one succeeds. It
// returns an empty kind if all of them fail.
func kindOf(ctx context.Context, db *sql.DB) kind {
	var version string
	ask := func(query string) bool { return db.QueryRowContext(ctx, query).Scan(&version) == nil }
	switch {
	case ask("SELECT sqlite_version()"):
		return kind{"SQLite", " sqlite ", "SQLite"}
	case ask("SELECT version()") && strings.Contains(version, "MariaDB"):
		return kind{"MariaDB", " mysql mariadb ", "MariaDB"}
	case version != "" && version[0] >= '0' && version[0] <= '9':
		return kind{"MySQL", " mysql mariadb ", "MySQL"}
	case version != "":
		return kind{"PostgreSQL or a compatible server", " postgres ", "Postgres"}
	case ask("SELECT @@VERSION"):
		return kind{"SQL Server", " sqlserver ", "SQLServer"}
	case ask("SELECT banner FROM v$version WHERE ROWNUM = 1"):
		return kind{"Oracle", " oracle ", "Oracle"}
	}
	return kind{}
}

// Misunderstood reports whether the database did not understand a statement, for example because of a
// syntax error. Such an error usually means that the dialect belongs to another database.
func Misunderstood(err error) bool {
	return says(err, "syntax error", "error in your SQL syntax", "unrecognized token", "Incorrect syntax near", "ORA-009", "missing named argument", "Unknown column '$")
}

// says reports whether the error's text contains one of the phrases.
func says(err error, words ...string) bool {
	return err != nil && slices.ContainsFunc(words, func(word string) bool { return strings.Contains(err.Error(), word) })
}
