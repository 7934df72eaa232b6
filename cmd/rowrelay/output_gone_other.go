//go:build !unix

package main

// outputGone returns false, because only Unix systems have SIGPIPE.
func outputGone() bool { return false }
