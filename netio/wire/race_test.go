//go:build race

package wire

// raceEnabled: allocation budgets do not hold under the race detector.
const raceEnabled = true
