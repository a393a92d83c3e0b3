//go:build race

package netio

// raceEnabled: the race detector allocates, so budgets do not hold.
const raceEnabled = true
