//go:build !unix

package main

// outputGone need not be asked: there is no SIGPIPE.
func outputGone() bool { return false }
