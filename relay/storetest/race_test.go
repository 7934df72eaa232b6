//go:build race

package storetest

// The race detector makes the mutants, which tell of stores and not of races, take ten
// times as long: under it they are left out.
const underRace = true
