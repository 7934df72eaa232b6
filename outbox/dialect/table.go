package dialect

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	defaultName = "outbox"

	// Databases cut or refuse longer names. The longest that is derived from a
	// table's is that of the version table's sequence, "_schema_version_id_seq".
	maxIdentifier = 63
	maxName       = 40
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Table names the outbox table, and derives the names of everything that
// belongs to it. All its methods but Schema, Name and String return names that
// can be put into a statement as they are: qualified with the schema if there
// is one, and quoted where the database would read them otherwise.
//
// The zero value is the table "outbox" in the connection's own schema. Tables
// can be compared with ==.
type Table struct {
	schema string
	name   string // empty: defaultName, so that the zero value is the default
	ticked bool
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
	if err := checkIdentifier(name, maxName); err != nil {
		return Table{}, fmt.Errorf("table %q: the table's name %w", text, err)
	}
	if !qualified {
		return newTable("", name), nil
	}
	if err := checkIdentifier(schema, maxIdentifier); err != nil {
		return Table{}, fmt.Errorf("table %q: the schema's name %w", text, err)
	}
	return newTable(schema, name), nil
}

func newTable(schema, name string) Table {
	if name == defaultName {
		name = ""
	}
	return Table{schema: schema, name: name}
}

func checkIdentifier(name string, limit int) error {
	switch {
	case name == "":
		return fmt.Errorf("must not be empty")
	case len(name) > limit:
		return fmt.Errorf("must have at most %d bytes, and has %d", limit, len(name))
	case !identifier.MatchString(name):
		return fmt.Errorf("must consist of the letters A to Z, digits and underscores, and not begin with a digit")
	}
	return nil
}

// Schema returns the schema's name, unquoted; empty where none was given.
func (t Table) Schema() string { return t.schema }

// Name returns the table's own name, unquoted and unqualified.
func (t Table) Name() string {
	if t.name == "" {
		return defaultName
	}
	return t.name
}

// String returns what ParseTable reads.
func (t Table) String() string {
	if t.schema == "" {
		return t.Name()
	}
	return t.schema + "." + t.Name()
}

// Backquoted returns the same table, whose names are put into statements as MySQL
// and MariaDB quote them.
func (t Table) Backquoted() Table {
	t.ticked = true
	return t
}

// Hot is the table that producers write to: the rows to be delivered now.
func (t Table) Hot() string { return t.qualified("") }

// Held is the table of rows that are scheduled, wait for a retry, or are parked.
func (t Table) Held() string { return t.qualified("_held") }

// Done is the table of delivered rows.
func (t Table) Done() string { return t.qualified("_done") }

// Lanes is the table of lanes and their leases.
func (t Table) Lanes() string { return t.qualified("_lanes") }

// Relays is the table of living relays.
func (t Table) Relays() string { return t.qualified("_relays") }

// Settings is the table of what is stored once for all.
func (t Table) Settings() string { return t.qualified("_settings") }

// Epoch is, on PostgreSQL, the table that is emptied when the server may have lost
// what it had committed.
func (t Table) Epoch() string { return t.qualified("_epoch") }

// LaneLocks is, on MySQL and MariaDB, the table of what settles and takeovers
// lock.
func (t Table) LaneLocks() string { return t.qualified("_lane_locks") }

// KeyLocks is, on MySQL and MariaDB, the table of what writers of a key lock.
func (t Table) KeyLocks() string { return t.qualified("_key_locks") }

// Messages is the view over all rows, with their state.
func (t Table) Messages() string { return t.qualified("_messages") }

// SchemaVersion is goose's table of applied migrations.
func (t Table) SchemaVersion() string { return t.qualified("_schema_version") }

// Inbox is the table of what consumers have received, where the Table is named
// after it: the one table of its kind.
func (t Table) Inbox() string { return t.qualified("") }

// Index is the qualified name of an index, as DROP INDEX takes it. The suffix
// has at most 22 bytes.
func (t Table) Index(suffix string) string { return t.qualified("_" + suffix) }

// IndexName is the same without the schema, as PostgreSQL's CREATE INDEX takes
// it: an index is always in its table's schema.
func (t Table) IndexName(suffix string) string { return t.quoted(t.Name() + "_" + suffix) }

// Beside is a table of the database's own that is in the schema, as it is named.
func (t Table) Beside(name string) string {
	if t.schema == "" {
		return name
	}
	return t.quoted(t.schema) + "." + name
}

// Channel is where relays listen for new rows. It leaves out the schema, so
// that a producer that names it and a relay that finds the table by its search
// path meet; it is no SQL identifier yet, but quoting it is enough.
func (t Table) Channel() string { return "rowrelay_" + t.Name() }

func (t Table) qualified(suffix string) string {
	name := t.quoted(t.Name() + suffix)
	if t.schema == "" {
		return name
	}
	return t.quoted(t.schema) + "." + name
}

func (t Table) quoted(name string) string {
	if t.ticked {
		return "`" + name + "`"
	}
	return Quoted(name)
}

// Quoted is a name as PostgreSQL and most others take it in a statement. It relies on ParseTable: the name has no quote in it.
func Quoted(name string) string {
	if name != strings.ToLower(name) || reserved[name] {
		return `"` + name + `"`
	}
	return name
}
