//go:build race

package storetest

// The mutants prove something about stores and not about races. The race detector makes them ten
// times as slow, so they are skipped under it.
const underRace = true
