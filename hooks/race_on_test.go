//go:build race

package hooks

const raceDetector = true // it multiplies the memory that everything takes
