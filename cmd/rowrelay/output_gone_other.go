//go:build !unix

package main

// outputGone returns false, because these systems have no SIGPIPE.
func outputGone() bool { return false }
