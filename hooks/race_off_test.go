//go:build !race

package hooks

const raceDetector = false
