// Package inbox has no code. It has those tests of package outbox/inbox that need a database.
package inbox
