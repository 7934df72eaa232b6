//go:build race

package relay_test

// With the race detector a history takes five times as long. So it runs only a few of them, and half of some tables. It doesn't
// run mutants, which test stores and not races, nor long computations.
const underRace = true
