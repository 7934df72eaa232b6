package dialect

// SessionIsolated is implemented by a dialect of a database whose drivers take no
// level of isolation with a transaction. It is the session's own then: READ
// COMMITTED, unless somebody has set another one, at which the statements are
// right, too, and are busy more often.
type SessionIsolated interface{ SessionIsolated() }
