//go:build !cgo

package testdb

const hasCgo = false

func mattnName() string { return "sqlite/mattn" }
