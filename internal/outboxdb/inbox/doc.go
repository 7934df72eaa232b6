// Package inbox has no code. It has the tests of package outbox/inbox that need a database.
package inbox
