//go:build race

package client

// raceEnabled: the race detector allocates, so budgets do not hold.
const raceEnabled = true
