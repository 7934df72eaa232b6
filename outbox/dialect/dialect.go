// Package dialect has what producers and consumers need to know of a database, and what
// all must agree on: how a message is written, the inbox, the tables' names, what an error
// means, and which server it is. It imports no driver: a dialect turns typed arguments into
// a [Query], and whoever holds a connection runs it. What a relay asks stands in
// relay/sqlstore, a folder a database.
//
// dialect.go has what all share: the interface, the tables' names, and errors by which a database
// tells that it is another one. insert.go makes inserts. Each database has a file of its own, in
// this order: writing, the inbox, the tables, errors, and which server it is.
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

// Dialect is what the project knows of one database. Its methods may be called
// concurrently; they only make statements.
type Dialect interface {
	// Name is the dialect's own, as ByName takes it.
	Name() string

	// Insert returns the statement that inserts the rows, with ids in the rows'
	// order; as few statements as the database's limits allow, normally one.
	Insert(table Table, rows []Row) []Query

	// InsertIDs inserts messages' ids into the table of ids, each with the token, but for
	// those that are there: it affects as many rows fewer, or fails with an error that
	// Received knows. It waits for a transaction that has inserted the same and is still
	// open.
	InsertIDs(table Table, ids []string, token int64) []Query

	// DeleteIDs deletes those of these ids that were inserted with the token; with any, if
	// it is 0.
	DeleteIDs(table Table, ids []string, token int64) []Query

	// Cancel deletes a scheduled message that isn't due within the time ahead. There is a
	// statement for the hot table and one for the held table, in this order, as a message
	// only moves from hot to held; the second runs if the first affects no row. Neither locks
	// a row that it doesn't delete, nor waits for a message that is being delivered. Where
	// this takes a search without locks, find makes it first: it selects the index in deletes
	// of the statement to begin with, and the row's lane and id, which the caller puts before
	// the arguments of each statement. If find returns no row, there is no such message. On
	// other databases the SQL of find is empty.
	Cancel(table Table, messageID string, ahead time.Duration) (find Query, deletes [2]Query)

	// LockKeys returns statements that hold other writers of these keys back
	// until the transaction ends, in an order that can't deadlock. Empty where
	// the database has one writer at a time.
	LockKeys(table Table, keys []string) []Query

	// Notify returns the statement that wakes listening relays when the
	// transaction commits. Empty where the database has no such thing.
	Notify(table Table) []Query

	// Written selects all messages in the order of their ids, for tests: id,
	// topic, key, payload, whether payload is NULL, payload_text, headers,
	// available_at and expires_at as WrittenTime has them, and priority. All but the first two,
	// the flag and the last can be NULL.
	Written(table Table) Query

	// Receive inserts a message's id into an inbox for this consumer, to recognise a
	// message that comes again. It affects one row. Where the id is there already it
	// affects none, or fails with an error that Received knows. It waits for a
	// transaction that has inserted the same and is still open.
	Receive(table Table, consumer, messageID string) Query

	// Received says that Receive failed because the id is there. The transaction
	// can go on.
	Received(err error) bool

	// PurgeReceived deletes up to limit of this consumer's ids that were received
	// longer ago.
	PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query

	// InboxVersion selects the version of an inbox, as text.
	InboxVersion(table Table) Query

	// SchemaVersion selects the version of an outbox's tables, as text.
	SchemaVersion(table Table) Query

	// FixedRows are the rows that the tables have from the beginning, and always.
	FixedRows(table Table) []FixedRows

	// MakeRowIndexes makes the indexes that claiming by rows needs, where they
	// are missing, one statement each. DropRowIndexes drops them.
	MakeRowIndexes(table Table) []Query
	DropRowIndexes(table Table) []Query

	// RowIndexes selects how many of these indexes there are, of RowIndexCount.
	RowIndexes(table Table) Query

	// What a driver's error means, which is told without knowing the driver.

	// Busy: the database refused for the moment and changed nothing.
	Busy(err error) bool

	// TimedOut: the server ended the statement, or its transaction, as it took longer than a setting
	// allows, or as somebody cancelled it. It changed nothing.
	TimedOut(err error) bool

	// Missing: a table or a schema isn't there.
	Missing(err error) bool

	// Denied: the user lacks a right.
	Denied(err error) bool

	// Invalid: the database refuses a value of a row, and would refuse it again.
	Invalid(err error) bool

	// Refused: the database refuses the statement, and would refuse it again, whatever its
	// values are. Denied errors are refused, too.
	Refused(err error) bool

	// ReadOnly: the server takes no writes, like a standby, or an old primary after a switchover.
	// [Redial] leaves it.
	ReadOnly(err error) bool
}

// Redial closes the idle connections of a pool, so that the next statement connects again: after a switchover
// the same name leads to another server, while the old one keeps its connections.
func Redial(ctx context.Context, db *sql.DB) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // others may take all connections meanwhile
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

// all are the dialects that there are.
func all() []Dialect {
	return []Dialect{Postgres(), MySQL(), MariaDB(), Oracle(), SQLServer(), SQLite()}
}

// ByName returns the dialect with that name: postgres, mysql, mariadb, oracle, sqlserver or sqlite.
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

// WrittenTime is the form of times, in UTC, in what Written selects. Fractions
// of a second follow it.
const WrittenTime = "2006-01-02 15:04:05"

// inboxVersion is 1 where there is a table: there is no other version.
func inboxVersion(table Table) Query {
	return Query{SQL: "SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM " + table.Inbox + " WHERE consumer IS NULL"}
}

// Fitting is implemented by a dialect whose servers differ in what they can do.
// Whoever opens a table asks the server, and goes on with the variant that fits.
type Fitting interface {
	// Server selects what there is to know of the server: lines of a name, in
	// lower case, and a value. It needs no table and no right. The trial, which is made on
	// the table, shows whether a select passes over rows that another transaction has
	// locked, without waiting. Nil: there is no need to try.
	Server(table Table) (facts Query, trial *Trial)

	// Fit returns the variant for a server that has answered so. It fails if
	// there is none; the error names the server's version, and what is needed.
	Fit(server Server) (Fit, error)
}

// Trial is made with two transactions: Hold runs in the one, and while that is
// open Pass runs in the other. Neither changes anything. Both select one column.
type Trial struct {
	// Begin comes first in both transactions: it bounds their wait for a lock to about a
	// second, so that a server which waits says so, and a slow one doesn't seem to. End
	// comes last, where the bound is the session's.
	Begin, End []Query

	Hold Query  // locks one row
	Pass Query  // selects that row, and another one, but those that are locked
	Want string // what Pass then selects, as text: the other row alone
}

// Server is what a server has answered.
type Server struct {
	Facts map[string]string // by name, as [Fitting.Server] selects them
	Skips bool              // the trial went well; true if there was none
}

// Fit is a dialect that fits a server.
type Fit struct {
	Dialect Dialect

	// Unordered says that ids aren't given out in one order for all who write,
	// as several servers do so at a time: rows may appear below others as long
	// as the longest transaction lasts, and no observation tells when.
	Unordered bool

	// Notes are what an operator should know: for a check, and for the log.
	Notes []Note
}

// Note is one thing to know about a server.
type Note struct {
	Name   string // of one or two words
	OK     bool
	Detail string // what was found
	Hint   string // what to do, if it isn't OK
}

// FixedRows are rows that migrations write once, and without which relays pass over messages
// without a word: lanes, and rows that stand for locks.
type FixedRows struct {
	Table string
	Want  int   // how many there are
	Count Query // selects how many of them are there
	Fill  Query // inserts the missing ones, and leaves the others as they are
}

// Repeating is implemented by a dialect of a database that commits each
// statement which makes or drops something: of a migration that failed, what came
// before stays, and it is run again from its beginning.
type Repeating interface {
	// Made says that a statement failed because what it makes is there already;
	// Gone, that it failed because what it drops isn't there.
	Made(err error) bool
	Gone(err error) bool
}

// DefaultTable is the name of an outbox that was given no other.
const DefaultTable = "outbox"

const (
	// Databases cut or refuse longer names. The longest that is derived from a
	// table's is that of the version table's sequence, "_schema_version_id_seq".
	maxIdentifier = 63
	maxName       = 40
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Table has the names of an outbox's tables, or of an inbox, as [ParseTable] derives them
// from one name. All but Schema, Name and Channel can be put into a statement as they are:
// they are qualified with the schema if there is one, and quoted where the database would
// read them otherwise. Tables can be compared with ==.
type Table struct {
	Schema string // unquoted; empty: the connection's own
	Name   string // unquoted and unqualified

	Pending  string // what producers write to: the rows to be delivered now
	Held     string // rows that are scheduled, wait for a retry, or are parked
	Done     string // delivered rows
	IDs      string // ids of messages whose writers want no duplicates
	Lanes    string // lanes and their leases
	Relays   string // living relays
	Settings string // what is stored once for all
	Controls string // what operators have put in force: pauses and limits
	Actions  string // what operators have done
	Messages string // a view over all rows, with their state

	Epoch     string // on PostgreSQL: emptied when the server may have lost what it had committed
	LaneLocks string // on MySQL and MariaDB: what settles and takeovers lock
	KeyLocks  string // on MySQL and MariaDB: what writers of a key lock

	SchemaVersion string // goose's table of applied migrations

	// Inbox is the one table of an inbox: what consumers have received.
	Inbox string

	// Channel is where relays listen for new rows. It leaves out the schema, so that a
	// producer that names it and a relay that finds the table by its search path meet; it
	// is no SQL identifier yet, but quoting it is enough.
	Channel string

	prefix string // the schema, as it is put into a statement, and a dot; or nothing
	ticked bool   // names are quoted as MySQL does
}

// ParseTable reads "table" or "schema.table". Both are taken as they are
// written, letter case included, and consist of the letters A to Z, digits and
// underscores; neither begins with a digit. A table's name has at most 40
// bytes, a schema's 63.
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
			return Table{}, fmt.Errorf("table %q: the %s's name must consist of the letters A to Z, digits and underscores, and not begin with a digit", text, part.what)
		}
	}
	return Table{Schema: schema, Name: name}.named(), nil
}

// named derives all names from the schema and the table's own.
func (t Table) named() Table {
	if t.Schema != "" {
		t.prefix = t.quoted(t.Schema) + "."
	}
	hot := t.prefix + t.quoted(t.Name)
	t.Pending, t.Inbox, t.Channel = hot, hot, "rowrelay_"+t.Name
	t.Held, t.Done, t.Lanes, t.Relays = t.Index("held"), t.Index("done"), t.Index("lanes"), t.Index("relays")
	t.IDs, t.Controls, t.Actions = t.Index("ids"), t.Index("controls"), t.Index("actions")
	t.Settings, t.Messages, t.Epoch = t.Index("settings"), t.Index("messages"), t.Index("epoch")
	t.LaneLocks, t.KeyLocks, t.SchemaVersion = t.Index("lane_locks"), t.Index("key_locks"), t.Index("schema_version")
	return t
}

// Backquoted returns the same table, whose names are put into statements as MySQL
// and MariaDB quote them.
func (t Table) Backquoted() Table {
	t.ticked = true
	return t.named()
}

// String returns what ParseTable reads.
func (t Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// Index is the qualified name of what belongs to the table, as DROP INDEX takes an index's.
// The suffix has at most 22 bytes.
func (t Table) Index(suffix string) string { return t.prefix + t.quoted(t.Name+"_"+suffix) }

// IndexName is the same without the schema, as PostgreSQL's CREATE INDEX takes
// it: an index is always in its table's schema.
func (t Table) IndexName(suffix string) string { return t.quoted(t.Name + "_" + suffix) }

// Beside is a name that needs no quotes with the table's schema.
func (t Table) Beside(name string) string { return t.prefix + name }

// quoted is a name as it is put into a statement: in MySQL's quotes, or as PostgreSQL and
// most others take it. It relies on ParseTable: the name has no quote in it.
func (t Table) quoted(name string) string {
	switch {
	case t.ticked:
		return "`" + name + "`"
	case name != strings.ToLower(name) || slices.Contains(reserved, name):
		return `"` + name + `"`
	}
	return name
}

// reserved has the words that PostgreSQL, SQLite, SQL Server or Oracle don't take as the
// name of a table or schema unless they are quoted; all but public, which is the
// name of a schema on PostgreSQL, and on SQL Server that of a role.
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

// WrongKind is the error of a database that is of another kind than the dialect.
type WrongKind struct {
	Server string // what the database is, for people
	Given  string // the dialect's Name
	Right  string // the dialect to give: its function here, and its constant in package rowrelay
	Err    error  // the database's own error, if there is one
}

// Error says it to those who gave the dialect; a caller who has asked for a kind in another way
// says it in its own words.
func (w *WrongKind) Error() string {
	text := fmt.Sprintf("the database is %s and the dialect is that of %s: give dialect.%s()", w.Server, w.Given, w.Right)
	if w.Err != nil {
		text += ": " + w.Err.Error()
	}
	return text
}

func (w *WrongKind) Unwrap() error { return w.Err }

// Explain makes an error of a database a [WrongKind] where it is of another kind than the
// dialect: its own error then is about one of our words. It asks the database, so it is for
// errors that come before any work.
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

// kind is a kind of database.
type kind struct {
	name, dialects, right string
}

// kindOf asks in the words of one kind after the other; its name is empty if none
// of them is understood.
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
		return kind{"PostgreSQL or its like", " postgres ", "Postgres"}
	case ask("SELECT @@VERSION"):
		return kind{"SQL Server", " sqlserver ", "SQLServer"}
	case ask("SELECT banner FROM v$version WHERE ROWNUM = 1"):
		return kind{"Oracle", " oracle ", "Oracle"}
	}
	return kind{}
}

// Misunderstood says that a database didn't understand a statement. Those of a
// dialect are understood by its own databases.
func Misunderstood(err error) bool {
	return says(err, "syntax error", "error in your SQL syntax", "unrecognized token", "Incorrect syntax near", "ORA-009", "missing named argument", "Unknown column '$")
}

// says looks for words in an error's text.
func says(err error, words ...string) bool {
	return err != nil && slices.ContainsFunc(words, func(word string) bool { return strings.Contains(err.Error(), word) })
}
