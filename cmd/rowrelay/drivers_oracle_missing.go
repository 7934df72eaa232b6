//go:build !oracle

package main

// withOracle has nothing to add: Oracle's driver is large, and most need
// another one.
func withOracle(others []databaseDriver) []databaseDriver { return others }
