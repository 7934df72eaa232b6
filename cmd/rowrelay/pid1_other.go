//go:build !linux

package main

func runAsInit() (code int, ok bool) { return 0, false }
