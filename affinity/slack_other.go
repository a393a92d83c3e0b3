//go:build !linux

package affinity

import "time"

// RestartWithTimerSlack is for Linux; elsewhere there is no slack to set, and nothing happens.
func RestartWithTimerSlack(time.Duration) error { return nil }
