package stats

import "math"

// MeanInterval returns where the mean of what values are a sample of lies with 95 % confidence, by Student's t. It is for differences of
// pairs, which may be negative, and takes no logarithms. Fewer than two values have no interval: it is then without bounds.
func MeanInterval(values []float64) (low, high float64) {
	n := float64(len(values))
	if n < 2 {
		return math.Inf(-1), math.Inf(1)
	}
	mean, squares := 0.0, 0.0
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	reach := studentQuantile(0.975, n-1) * math.Sqrt(squares/(n-1)/n)
	return mean - reach, mean + reach
}
