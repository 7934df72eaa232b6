//go:build !oracle

package main

// optionalDrivers returns none: Oracle's driver is large, so it needs the build tag
// oracle.
func optionalDrivers() []databaseDriver { return nil }
