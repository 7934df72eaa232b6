//go:build race

package relay_test

// The race detector makes a history take five times as long. So under it a few are
// played, and half of some tables; mutants, which tell of stores and not of races, are
// not, nor what only computes for long.
const underRace = true
