// Package outboxdb has no code. It has the tests of the module outbox that need a database, a
// driver or the package migrations. They are here because the module outbox has no
// dependencies, not even for its tests.
package outboxdb
