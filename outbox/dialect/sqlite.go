package dialect

type sqlite struct{}

// SQLite is the dialect of SQLite 3.35 and later. Open databases in WAL mode,
// with a busy_timeout, and begin transactions that write with BEGIN IMMEDIATE
// (_txlock=immediate in the DSN of both usual drivers): one that reads before it
// writes fails at once if another has written meanwhile.
func SQLite() Dialect { return sqlite{} }

// Name returns "sqlite".
func (sqlite) Name() string { return "sqlite" }

// LockKeys returns nothing: there is one writer at a time.
func (sqlite) LockKeys(Table, []string) []Query { return nil }

// Notify returns nothing: SQLite can't wake another process.
func (sqlite) Notify(Table) []Query { return nil }

func (sqlite) Written(table Table) Query {
	return Query{SQL: "SELECT message_id, topic, message_key, payload, payload IS NULL, payload_text, headers," +
		" available_at, priority FROM " + table.Messages() + " ORDER BY id"}
}
