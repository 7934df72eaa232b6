//go:build !cgo

package testdb

const hasCgo = false
