package dialect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

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

	Hot      string // what producers write to: the rows to be delivered now
	Held     string // rows that are scheduled, wait for a retry, or are parked
	Done     string // delivered rows
	Lanes    string // lanes and their leases
	Relays   string // living relays
	Settings string // what is stored once for all
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
	t.Hot, t.Inbox, t.Channel = hot, hot, "rowrelay_"+t.Name
	t.Held, t.Done, t.Lanes, t.Relays = t.Index("held"), t.Index("done"), t.Index("lanes"), t.Index("relays")
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
