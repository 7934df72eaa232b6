// Package grammar has the tests that parse all SQL for SQL Server and Oracle, on which no test has run yet, with
// parsers that others wrote. make proof-sql runs them.
package grammar
