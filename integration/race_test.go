//go:build race

package integration

// raceEnabled says whether the tests, and so the binary, have the race detector.
const raceEnabled = true
