//go:build !unix

package main

// outputGone is false, because these systems have no SIGPIPE.
func outputGone() bool { return false }
