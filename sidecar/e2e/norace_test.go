//go:build !race

package e2e

// raceEnabled says that this test binary, and so the child, is built with -race.
const raceEnabled = false
