package load

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// A Footprint is what a Go process holds, in bytes, after garbage collection.
type Footprint struct {
	RSS       int64 `json:"rss_bytes"` // what the system counts, with what the collector has freed and not yet returned
	HeapInUse int64 `json:"heap_in_use_bytes"`
	HeapLive  int64 `json:"heap_live_bytes"` // objects in it
	Stacks    int64 `json:"stack_bytes"`
}

// Held is heap and stacks.
func (m Footprint) Held() int64 { return m.HeapInUse + m.Stacks }

// Minus returns m - before.
func (m Footprint) Minus(before Footprint) Footprint {
	return Footprint{m.RSS - before.RSS, m.HeapInUse - before.HeapInUse, m.HeapLive - before.HeapLive, m.Stacks - before.Stacks}
}

// collections are made before memory is read: pools let go of what they hold in two, and a stack shrinks by half in each.
const collections = 4

// FootprintOf asks the profiles of a process at HOST:PORT to collect its garbage, and then what it holds. pid tells its RSS.
func FootprintOf(ctx context.Context, address string, pid int) (Footprint, error) {
	control := newAdminControl(address, "", "")
	var text string
	for range collections {
		status, answer, err := control.do(ctx, http.MethodGet, "/debug/pprof/heap?gc=1&debug=1", nil)
		if err != nil {
			return Footprint{}, err
		}
		if status != http.StatusOK {
			return Footprint{}, refused("heap profile", status, answer)
		}
		text = string(answer)
	}
	m, err := parseFootprint(text)
	if err != nil {
		return m, err
	}
	usage, err := ProcessUsage(pid)
	m.RSS = int64(usage[RSSBytes])
	return m, err
}

// parseFootprint reads the lines "# Name = value" at the end of a heap profile as text; that of the stacks is "in use / from the system".
func parseFootprint(text string) (m Footprint, err error) {
	for _, field := range []struct {
		name string
		into *int64
	}{{"HeapInuse", &m.HeapInUse}, {"HeapAlloc", &m.HeapLive}, {"Stack", &m.Stacks}} {
		_, rest, ok := strings.Cut(text, "\n# "+field.name+" = ")
		value, _, _ := strings.Cut(rest, "\n")
		value, _, _ = strings.Cut(value, " / ")
		if *field.into, err = strconv.ParseInt(value, 10, 64); !ok || err != nil {
			return m, fmt.Errorf("the heap profile does not tell %s", field.name)
		}
	}
	return m, nil
}
