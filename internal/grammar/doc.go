// Package grammar has the tests that parse all SQL for SQL Server and Oracle with parsers of other projects, because no test
// has run on these servers yet. make proof-sql runs them.
package grammar
