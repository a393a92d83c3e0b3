package felix

import (
	"os"
	"strings"
	"testing"
)

// Markers in README.md around the table of limits.
const (
	limitsBegin = "<!-- limits -->\n"
	limitsEnd   = "<!-- /limits -->"
)

// TestLimitsTable has README.md tell what the code does, and every row a default, a unit and an end.
func TestLimitsTable(t *testing.T) {
	content, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), limitsBegin)
	have, after, closed := strings.Cut(rest, limitsEnd)
	if !ok || !closed {
		t.Fatalf("README.md lacks the lines %q and %q around the table of limits", limitsBegin, limitsEnd)
	}
	known := map[string]bool{}
	for _, s := range Settings() {
		known[s.Key] = true
	}
	told := map[string]bool{
		// Rules of what happens at a bound, which is in the rows of the bound.
		"sub_queue_policy": true, "pub_ingress_wait": true, "tenant_publish_quotas": true, "tenant_publish_burst_ms": true,
	}
	for _, l := range limits() {
		told[l.setting] = true
	}
	for _, s := range limitSettings() {
		if !told[s.Key] {
			t.Errorf("%s bounds something and has no row", s.Key)
		}
	}
	for _, l := range limits() {
		if l.what == "" || l.unit == "" || l.atBound == "" || (l.setting == "") == (l.value == "") || l.setting != "" && !known[l.setting] {
			t.Errorf("row %+v lacks something", l)
		}
	}
	if have == LimitsTable() {
		return
	}
	if !*update {
		t.Fatal("the table of limits in README.md is not the one in the code; go test -run LimitsTable -update . writes it")
	}
	if err := os.WriteFile("README.md", []byte(before+limitsBegin+LimitsTable()+limitsEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
