//go:build race

package load

// raceEnabled: the race detector allocates, so budgets do not hold.
const raceEnabled = true
