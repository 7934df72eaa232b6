package dialect

import (
	"fmt"
	"strconv"
	"strings"
)

// Setting is a setting of a database's sessions on which a relay depends.
type Setting struct {
	Name string // as the server calls it

	// Value is what the rowrelay command sets on each of its connections, as the server's language has it, and Why
	// the reason. A Writer, and a store on an application's pool, set nothing.
	Value, Why string

	// Refused are the values with which a store doesn't open. Empty: it opens with any.
	Refused string

	Only string // the dialect whose servers have the setting; empty: all servers have it

	unfit        func(value string) bool // nil: the backend tries what the session does
	wrong, right string                  // what happens with an unfit value, and what to set instead
}

// Settings are all of a dialect's settings; those of MySQL and of MariaDB are one list. It is empty where none is known.
func Settings(d Dialect) []Setting {
	if of, ok := d.(interface{ settings() []Setting }); ok {
		return of.settings()
	}
	return nil
}

// fits refuses a session by the values of its settings. One that isn't known is passed over.
func fits(settings []Setting, values map[string]string) error {
	for _, s := range settings {
		if value := values[s.Name]; value != "" && s.unfit != nil && s.unfit(value) {
			return fmt.Errorf("%s of this session is %s, with which %s: set it to %s, in the URL or in the server", s.Name, value, s.wrong, s.right)
		}
	}
	return nil
}

func (mysql) settings() []Setting {
	not := func(fit string) func(string) bool { return func(value string) bool { return value != fit } }
	const (
		cut         = "the server refuses some of a relay's statements or cuts off what they return"
		isolation   = "the servers' own default locks the gaps between rows, and producers then wait for each other"
		dirty       = "READ-UNCOMMITTED"
		charset     = "keys and topics are in UTF-8"
		rangeMemory = 8 << 20 // the server's default
	)
	uncommitted := func(value string) bool { return value == dirty }
	setting := func(name, value, why, refused string, unfit func(string) bool, wrong, right string) Setting {
		return Setting{Name: name, Value: value, Why: why, Refused: refused, unfit: unfit, wrong: wrong, right: right}
	}
	only := func(dialect Dialect, s Setting) Setting {
		s.Only = dialect.Name()
		return s
	}
	text := func(name string) Setting {
		return setting(name, "utf8mb4", charset, "all but utf8mb4", not("utf8mb4"), "keys and topics change on their way", "utf8mb4, as charset=utf8mb4 does")
	}
	return []Setting{
		only(MySQL(), setting("transaction_isolation", "'READ-COMMITTED'", isolation, dirty, uncommitted, "messages would be delivered that are never committed", "READ-COMMITTED or REPEATABLE-READ")),
		only(MariaDB(), setting("tx_isolation", "'READ-COMMITTED'", isolation, dirty, uncommitted, "messages would be delivered that are never committed", "READ-COMMITTED or REPEATABLE-READ")),
		setting("completion_type", "'NO_CHAIN'", "a commit ends a transaction, and nothing else", "all but NO_CHAIN", not("NO_CHAIN"), "a commit begins another transaction or ends the connection", "NO_CHAIN"),
		setting("sql_mode", "'TRADITIONAL'", "what is too long is an error, and is not cut off", "EMPTY_STRING_IS_NULL (MariaDB)", func(value string) bool { return strings.Contains(value, "EMPTY_STRING_IS_NULL") },
			"empty texts and payloads become NULL", "one without EMPTY_STRING_IS_NULL"),
		only(MySQL(), setting("range_optimizer_max_mem_size", "0", "lists of keys are looked up by an index, however long", "less than 8 MiB, but for 0", func(value string) bool {
			size, err := strconv.Atoi(value)
			return err == nil && size != 0 && size < rangeMemory
		}, "the server may read whole tables where keys are listed", strconv.Itoa(rangeMemory)+" or more, or to 0")),
		setting("autocommit", "1", "no statement leaves a transaction open", "OFF", not("ON"), "a single statement begins a transaction that nobody ends", "ON"),
		setting("sql_safe_updates", "0", "some statements change whole tables", "ON", not("OFF"), cut, "OFF"),
		setting("sql_select_limit", mysqlNoLimit, "no result is cut off", "any limit", not(mysqlNoLimit), cut, mysqlNoLimit),
		setting("sql_big_selects", "1", "no statement is refused, whatever max_join_size is", "OFF, as max_join_size has it", not("ON"), cut, "ON (max_join_size turns it off)"),
		text("character_set_client"), text("character_set_connection"), text("character_set_results"),
		{Name: "time_zone", Value: "'+00:00'", Why: "times are in UTC"},
		only(MySQL(), Setting{Name: "max_execution_time", Value: "0", Why: "a relay bounds its calls itself; the page's reads have a limit"}),
		only(MariaDB(), Setting{Name: "max_statement_time", Value: "0", Why: "a relay bounds its calls itself; the page's reads have a limit"}),
	}
}

// mysqlNoLimit is the highest value of a limit, which is none.
const mysqlNoLimit = "18446744073709551615"

func (postgres) settings() []Setting {
	return []Setting{
		{Name: "client_encoding", Value: "UTF8", Why: "pgx takes all texts for UTF-8", Refused: "all but UTF8, and SQL_ASCII where the server converts nothing"},
		{Name: "datestyle", Value: "ISO", Why: "in the modes exec and simple_protocol pgx reads times as texts", Refused: "one in which the driver can't read times"},
		{Name: "bytea_output", Value: "hex", Why: "in the same modes pgx reads bytes as texts", Refused: "one in which the driver can't read bytes"},
		{Name: "standard_conforming_strings", Value: "on", Why: "in the mode simple_protocol pgx writes values into the text"},
		{Name: "jit", Value: "off", Why: "to compile a statement takes a hundred times as long as to run it"},
	}
}

func (sqlite) settings() []Setting {
	return []Setting{
		{Name: "journal_mode", Value: "WAL", Why: "readers and the writer don't hold each other up", Refused: "all but WAL, and MEMORY of a database in memory"},
		{Name: "busy_timeout", Value: "10000", Why: "a writer waits for its turn", Refused: "less than 1000"},
		{Name: "synchronous", Value: "FULL", Why: "with NORMAL a loss of power can take the last commits"},
		{Name: "foreign_keys", Value: "1", Why: "an application's own keys hold for what the command writes"},
	}
}
