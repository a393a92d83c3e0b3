package load

import (
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	// 3 publishers of batches of 10, 3,000 records per second: one batch every 10/3 ms, each publisher one every 10 ms.
	s := newSchedule(3000, 10, 3)
	for i := range 3 {
		for k := range 100_000 {
			want := (float64(k)*10 + float64(i)*10/3) * float64(time.Millisecond)
			if got := float64(s.due(i, k)); got < want-2 || got > want+2 {
				t.Fatalf("batch %d of publisher %d is due at %v, want %v", k, i, got, want)
			}
		}
	}
	if newSchedule(0, 10, 3).open() || !s.open() {
		t.Error("open")
	}
	for _, tt := range []struct {
		i    int
		end  time.Duration
		want int
	}{
		{0, 0, 0}, {0, 1, 1}, {0, 10 * time.Millisecond, 1}, {0, 10*time.Millisecond + 1, 2}, {1, 3 * time.Millisecond, 0}, {1, 4 * time.Millisecond, 1},
		{2, time.Second, 100}, {0, time.Hour, 360_000},
	} {
		if got := s.before(tt.i, int64(tt.end)); got != tt.want {
			t.Errorf("%d batches of publisher %d are due before %v, want %d", got, tt.i, tt.end, tt.want)
		}
	}
	// All of them together: as many as the rate says.
	total := 0
	for i := range 3 {
		total += s.before(i, int64(10*time.Second))
	}
	if total != 3000 {
		t.Errorf("%d batches in 10 s, want 3000", total)
	}
}
