package interop

import "testing"

// A broker that drains under a published client ends cleanly, and no call of the client hangs.
func TestDrainUnderAClient(t *testing.T) {
	eachSurface(t, func(t *testing.T, surface string) {
		b := startBroker(t)
		d := startDriver(t, surface).connect(b, b.Listen)
		const stream = "drained"
		d.do("subscribe", command{"name": "s", "stream": stream})
		d.do("publish", command{"stream": stream, "records": numbered("r", 1)})
		sameRecords(t, stream, d.next("s", 1), 0, numbered("r", 1))
		publishing := d.start("publish", command{"stream": stream, "records": numbered("during", 5000)})
		b.drain()
		if a := d.finish(publishing, "publish during the drain"); a.Error != nil && !a.Error.Felix {
			t.Errorf("publish during the drain: %v", a.Error)
		}
	})
}
