package wire

import "testing"

func TestCodes(t *testing.T) {
	// From WIRE.md section 14.
	want := []struct {
		code  Code
		name  string
		retry string
	}{
		{1, "unauthenticated", "fatal"}, {2, "forbidden", "fatal"}, {3, "not_found", "retry_after"}, {4, "invalid_request", "fatal"},
		{5, "shard_unavailable", "retry"}, {6, "not_leader", "redirect"}, {7, "quorum_timeout", "outcome_unknown"},
		{8, "leadership_lost", "outcome_unknown"}, {9, "unacknowledged", "outcome_unknown"}, {10, "overloaded", "retry_after"},
		{11, "limit_exceeded", "fatal"}, {12, "draining", "retry"}, {13, "internal", "outcome_unknown"}, {14, "storage", "outcome_unknown"},
		{15, "stale_claim", "retry"}, {16, "revoked", "fatal"}, {17, "stale_width", "retry"},
	}
	for _, w := range want {
		if got := w.code.String(); got != w.name {
			t.Errorf("code %d is %q, want %q", w.code, got, w.name)
		}
		if got, ok := ParseCode(w.name); !ok || got != w.code {
			t.Errorf("ParseCode(%q) = %d, %v, want %d", w.name, got, ok, w.code)
		}
		if got := w.code.DefaultRetry().String(); got != w.retry {
			t.Errorf("code %s has class %s, want %s", w.name, got, w.retry)
		}
		if !w.code.Known() {
			t.Errorf("code %s is not known", w.name)
		}
	}
	for _, c := range []Code{0, 18, 65535} {
		if c.Known() || c.DefaultRetry() != RetryFatal {
			t.Errorf("code %d: known %v, class %v", c, c.Known(), c.DefaultRetry())
		}
	}
	if got := Code(99).String(); got != "code_99" {
		t.Errorf("Code(99) is %q", got)
	}
	for _, name := range []string{"", "code_99", "Overloaded"} {
		if c, ok := ParseCode(name); ok {
			t.Errorf("ParseCode(%q) = %d", name, c)
		}
	}
}

func TestRetry(t *testing.T) {
	for r, name := range map[Retry]string{1: "retry", 2: "retry_after", 3: "redirect", 4: "outcome_unknown", 5: "fatal"} {
		if r.String() != name || ParseRetry(name) != r {
			t.Errorf("class %d: %q, ParseRetry(%q) = %d", r, r, name, ParseRetry(name))
		}
	}
	if ParseRetry("later") != RetryFatal || Retry(0).String() != "fatal" || Retry(6).String() != "fatal" {
		t.Errorf("an unknown class does not read as fatal")
	}
}
