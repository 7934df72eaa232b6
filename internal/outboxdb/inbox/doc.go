// Package inbox has no code. Its tests are those of package outbox/inbox that need
// a database.
package inbox
