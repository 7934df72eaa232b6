//go:build race

package relay_test

// With the race detector a history takes five times as long. So the tests run only a few histories, and half of the cases of
// some tables. They skip mutants, which find no races, and long computations.
const underRace = true
