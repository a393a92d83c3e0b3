//go:build race

package interop

// raceEnabled says that the broker is built with the race detector, too.
const raceEnabled = true
