//go:build race

package sandbox

const raceDetector = true // it multiplies the memory that everything takes
