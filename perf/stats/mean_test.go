package stats

import (
	"math"
	"testing"
)

func TestMeanInterval(t *testing.T) {
	for _, tt := range []struct {
		values    []float64
		low, high float64
	}{
		{[]float64{1, 1, 1}, 1, 1},
		{[]float64{0, 2}, 1 - 12.7062, 1 + 12.7062},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5.5 - 2.1659, 5.5 + 2.1659},
		{[]float64{-3, -1}, -2 - 12.7062, -2 + 12.7062},
	} {
		low, high := MeanInterval(tt.values)
		near(t, "low", low, tt.low, 1e-4)
		near(t, "high", high, tt.high, 1e-4)
	}
	for _, few := range [][]float64{nil, {1}} {
		if low, high := MeanInterval(few); !math.IsInf(low, -1) || !math.IsInf(high, 1) {
			t.Errorf("%v: %v to %v", few, low, high)
		}
	}
}
