package dialect

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// mysqlFacts are the variables that matter, of any server of the family; each
// has some of them.
const mysqlFacts = `'version', 'version_comment', 'aurora_version', 'auto_increment_increment', 'wsrep_on',` +
	` 'group_replication_group_name', 'group_replication_single_primary_mode',` +
	` 'innodb_thread_concurrency', 'innodb_max_purge_lag', 'read_only', 'innodb_read_only',` +
	` 'transaction_isolation', 'tx_isolation', 'autocommit', 'time_zone', 'system_time_zone', 'tidb_txn_mode',` +
	` 'character_set_client', 'character_set_connection', 'character_set_results'`

// Server needs no right.
func (mysql) Server() Query {
	return mysqlQuery("SHOW VARIABLES WHERE variable_name IN (" + mysqlFacts + ")")
}

// Skipping tries two lanes, since these rows are always there.
func (mysql) Skipping(table Table) *Trial {
	return &Trial{
		Begin: []Query{mysqlQuery("SET @lock_wait_timeout = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1")},
		End:   []Query{mysqlQuery("SET SESSION innodb_lock_wait_timeout = @lock_wait_timeout")},
		Hold:  mysqlQuery("SELECT lane FROM " + table.Backquoted().Lanes() + " WHERE lane = 0 FOR UPDATE"),
		Pass:  mysqlQuery("SELECT lane FROM " + table.Backquoted().Lanes() + " WHERE lane IN (0, 1) ORDER BY lane FOR UPDATE SKIP LOCKED"),
		Want:  "1",
	}
}

// Fit tells MySQL from MariaDB and TiDB, refuses old ones, and knows which one has
// SKIP LOCKED.
func (d mysql) Fit(server Server) (Fit, error) {
	kind := mysqlKindOf(server.Facts)
	if kind.mariadb != d.isMariaDB() {
		return Fit{}, fmt.Errorf("the server is %s: use %s", kind, kind.remedy())
	}
	if kind.before(kind.least()) {
		return Fit{}, fmt.Errorf("the server is %s: %s or later is needed", kind, kind.leastText())
	}
	if err := mysqlSession(server.Facts); err != nil {
		return Fit{}, err
	}
	if kind.tidb {
		return fitTiDB(kind, server)
	}
	skips := server.Skips && !(kind.mariadb && kind.before(firstToSkip))
	fit := Fit{Dialect: kind.dialect(skips), Notes: []Note{{Name: "server", OK: true, Detail: kind.String()}}}
	fit.Notes = append(fit.Notes, mysqlSkipNote(skips))
	if why := mysqlWritersElsewhere(server.Facts); why != "" {
		fit.Unordered = true
		fit.Notes = append(fit.Notes, Note{Name: "order", Detail: why + ": messages of one key may overtake each other if their transactions run at the same time",
			Hint: "let one server take all writes, or do without order; each transaction that writes messages must be over within longest_transaction"})
	}
	fit.Notes = append(fit.Notes, mysqlSettingNotes(server.Facts)...)
	return fit, nil
}

// mysqlSession refuses sessions whose single statements see what isn't committed,
// or begin a transaction that nobody ends, or that change texts on their way.
func mysqlSession(facts map[string]string) error {
	for _, name := range []string{"transaction_isolation", "tx_isolation"} {
		if facts[name] == "READ-UNCOMMITTED" {
			return fmt.Errorf("%s of this session is READ-UNCOMMITTED, and messages would be delivered that are never committed:"+
				" set it to READ-COMMITTED or REPEATABLE-READ, in the URL or in the server", name)
		}
	}
	if facts["autocommit"] == "OFF" {
		return fmt.Errorf("autocommit of this session is OFF: set it to ON, in the URL or in the server")
	}
	for _, name := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
		if charset := facts[name]; charset != "" && charset != "utf8mb4" { // no charset of results: they come as they are
			return fmt.Errorf("%s of this session is %s, which changes keys and topics on their way:"+
				" set it to utf8mb4, by charset=utf8mb4 in the URL or by SET NAMES", name, charset)
		}
	}
	return nil
}

// mysqlKind is which server it is.
type mysqlKind struct {
	name    string
	mariadb bool
	tidb    bool
	version [3]int
	text    string // the version as the server has it
}

// TiDB's version begins with that of the MySQL that it stands in for.
var (
	mysqlVersionNumbers = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)(?:\.(\d+))?`)
	tidbVersionNumbers  = regexp.MustCompile(`TiDB-v?(\d+)\.(\d+)(?:\.(\d+))?`)
)

func mysqlKindOf(facts map[string]string) mysqlKind {
	kind := mysqlKind{name: "MySQL", text: facts["version"]}
	found := mysqlVersionNumbers.FindStringSubmatch(kind.text)
	if strings.Contains(kind.text, "TiDB") {
		kind.name, kind.tidb = "TiDB", true
		found = tidbVersionNumbers.FindStringSubmatch(kind.text)
	}
	for i := range kind.version {
		if i+1 < len(found) {
			kind.version[i], _ = strconv.Atoi(found[i+1])
		}
	}
	if strings.Contains(strings.ToLower(kind.text+facts["version_comment"]), "mariadb") {
		kind.name, kind.mariadb = "MariaDB", true
	}
	return kind
}

func (k mysqlKind) String() string { return k.name + " " + k.text }

func (k mysqlKind) remedy() string {
	if k.mariadb {
		return "a URL that begins with mariadb://, or dialect.MariaDB()"
	}
	return "a URL that begins with mysql://, or dialect.MySQL()"
}

// dialect is the variant for this version.
func (k mysqlKind) dialect(skipLocked bool) Dialect {
	if k.mariadb {
		return mysql{flavourMariaDB, skipLocked}
	}
	return mysql{flavourMySQL, skipLocked}
}

// least is the oldest version that will do: the first MySQL whose defaults may be
// expressions; the oldest MariaDB that is tried; and the first TiDB with UUID() as a default.
func (k mysqlKind) least() [3]int {
	switch {
	case k.mariadb:
		return [3]int{10, 5, 0}
	case k.tidb:
		return [3]int{7, 5, 0}
	default:
		return [3]int{8, 0, 13}
	}
}

// firstToSkip is the first MariaDB that has SKIP LOCKED.
var firstToSkip = [3]int{10, 6, 0}

func (k mysqlKind) leastText() string {
	numbers := k.least()
	if k.mariadb || k.tidb {
		return fmt.Sprintf("%s %d.%d", k.name, numbers[0], numbers[1])
	}
	return fmt.Sprintf("%s %d.%d.%d", k.name, numbers[0], numbers[1], numbers[2])
}

func (k mysqlKind) before(other [3]int) bool {
	for i := range other {
		if k.version[i] != other[i] {
			return k.version[i] < other[i]
		}
	}
	return false
}

func mysqlSkipNote(skips bool) Note {
	if skips {
		return Note{Name: "locked rows", OK: true, Detail: "are passed over (SKIP LOCKED)"}
	}
	return Note{Name: "locked rows", OK: true, Detail: "can't be passed over (no SKIP LOCKED): relays claim one after the other"}
}

// mysqlWritersElsewhere says why ids aren't given out in one order.
func mysqlWritersElsewhere(facts map[string]string) string {
	switch {
	case facts["wsrep_on"] == "ON":
		return "this is a Galera cluster, each of whose nodes gives out ids by itself"
	case facts["group_replication_group_name"] != "" && facts["group_replication_single_primary_mode"] == "OFF":
		return "this is a replication group with several primaries, each of which gives out ids by itself"
	case facts["auto_increment_increment"] != "" && facts["auto_increment_increment"] != "1":
		return "auto_increment_increment is " + facts["auto_increment_increment"] + ", so several servers give out ids"
	}
	return ""
}

// mysqlSettingNotes are about what keeps a writer between its id and its number,
// or keeps all from writing.
func mysqlSettingNotes(facts map[string]string) (notes []Note) {
	for _, name := range []string{"innodb_thread_concurrency", "innodb_max_purge_lag"} {
		if value := facts[name]; value != "" && value != "0" {
			notes = append(notes, Note{Name: "settings", Detail: name + " is " + value + ": a message whose insert it holds up for a second may lose its place",
				Hint: "set it to 0, its default"})
		}
	}
	for _, name := range []string{"read_only", "innodb_read_only"} {
		if value := facts[name]; value != "" && value != "OFF" && value != "0" {
			notes = append(notes, Note{Name: "writable", Detail: name + " is " + value, Hint: "use the primary server"})
		}
	}
	return notes
}
