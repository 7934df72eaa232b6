// Package conformance has the test that runs the suites on a server that somebody has. make conformance runs it.
package conformance
