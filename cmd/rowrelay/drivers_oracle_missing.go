//go:build !oracle

package main

// optionalDrivers are none: Oracle's driver is large, and most need
// another one.
func optionalDrivers() []databaseDriver { return nil }
