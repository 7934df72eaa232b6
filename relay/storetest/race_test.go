//go:build race

package storetest

// The mutants test the suite and not concurrency. The race detector makes them ten times slower, so
// they are skipped under it.
const underRace = true
