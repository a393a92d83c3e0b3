package felix

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMetricNames holds the names and labels of the broker's metrics against testdata/metrics.txt: dashboards and alarms are made of them.
func TestMetricNames(t *testing.T) {
	b := mustStart(t, Config{Cores: 1, DataDir: t.TempDir()})
	if _, err := mustDial(t, b).Publish(testContext(t), "orders", []byte("x")); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	b.WriteMetrics(&text)
	value := regexp.MustCompile(`="[^"]*"`)
	told := regexp.MustCompile(`\{(reason|result|part|state)=[^}]*\}`) // labels whose values are names of ours
	var names []string
	for line := range strings.Lines(text.String()) {
		name := line[:strings.LastIndexByte(line, ' ')]
		if !strings.HasPrefix(name, "felix_") {
			continue // comments, and what every Go program tells
		}
		if !told.MatchString(name) {
			name = value.ReplaceAllString(name, "")
		}
		if name != "felix_sub_lag_records_max" { // left out when the loops have no time
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const file = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(want)), "\n")
	for _, name := range names {
		if !slices.Contains(known, name) {
			t.Errorf("%s is new; go test -run MetricNames -update . takes it up", name)
		}
	}
	for _, name := range known {
		if !slices.Contains(names, name) {
			t.Errorf("%s is gone", name)
		}
	}
}
