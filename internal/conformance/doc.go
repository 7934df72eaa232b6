// Package conformance has the test that runs the conformance suites on a server that the user names. make conformance runs this test.
package conformance
