package interop

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// The programs of the published client's README run as they are against a broker that was started without any configuration of streams.
func TestQuickstart(t *testing.T) {
	needClient(t)
	for _, script := range []string{"quickstart.py", "quickstart_async.py"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t)
			var stderr output
			cmd, stdout := pythonCommand(t, &stderr, script, b.Listen, b.CAFile, "events")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var got []string
			lines := json.NewDecoder(stdout)
			for {
				var record struct {
					Payload string
					Offset  *uint64
				}
				if lines.Decode(&record) != nil {
					break
				}
				got = append(got, fmt.Sprintf("%s at %s", record.Payload, show(record.Offset)))
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%s: %v\n%s", script, err, stderr.String())
			}
			if want := "hello at 0, from at 1, python at 2"; strings.Join(got, ", ") != want {
				t.Fatalf("%s printed %q, want %q", script, got, want)
			}
		})
	}
}
