// Package grammar has the tests that parse all SQL for SQL Server, on which no test has run yet, with Microsoft's
// own parser. make proof-sql runs them.
package grammar
