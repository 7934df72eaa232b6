// Package outboxdb has no code. It has those tests of the module outbox that need a database, a
// driver or the tables, because that module requires nothing, not even for its tests.
package outboxdb
