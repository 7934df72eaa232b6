//go:build !race

package relay_test

const underRace = false
