// Package conformance has the test that runs the suites on a server that the user names. make conformance runs it.
package conformance
