// Package outboxdb has no code. Its tests are those of the module outbox that
// need a database, a driver or the tables: that module requires nothing, not even
// for its tests.
package outboxdb
