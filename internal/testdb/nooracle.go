//go:build !oracle

package testdb

const hasOracle = false
