package stats

import (
	"fmt"
	"math"
	"slices"
)

// A Comparison is how b differs from a.
type Comparison struct {
	MeanA  float64 `json:"mean_a"` // geometric
	MeanB  float64 `json:"mean_b"`
	NA     int     `json:"n_a"`
	NB     int     `json:"n_b"`
	Effect float64 `json:"effect"` // b / a - 1
	Low    float64 `json:"low"`    // of the 95 % interval of Effect
	High   float64 `json:"high"`
	T      float64 `json:"t"`
	DF     float64 `json:"df"` // degrees of freedom, Welch-Satterthwaite
	P      float64 `json:"p"`  // two-sided
}

const confidence = 0.95

// Compare compares two samples of positive values, at least two each.
func Compare(a, b []float64) (Comparison, error) {
	for name, sample := range map[string][]float64{"a": a, "b": b} {
		if len(sample) < 2 {
			return Comparison{}, fmt.Errorf("sample %s has %d values; at least 2 are needed", name, len(sample))
		}
		for _, v := range sample {
			if !(v > 0) || math.IsInf(v, 0) {
				return Comparison{}, fmt.Errorf("sample %s has the value %v; only positive ones can be compared", name, v)
			}
		}
	}
	meanA, varA := logMoments(a)
	meanB, varB := logMoments(b)
	c := Comparison{MeanA: math.Exp(meanA), MeanB: math.Exp(meanB), NA: len(a), NB: len(b)}
	difference := meanB - meanA
	c.Effect = math.Expm1(difference)
	seA, seB := varA/float64(len(a)), varB/float64(len(b))
	se := math.Sqrt(seA + seB)
	if se == 0 { // every run gave the same: there is no spread to compare with
		c.Low, c.High, c.DF = c.Effect, c.Effect, float64(len(a)+len(b)-2)
		if difference == 0 {
			c.P = 1
		}
		return c, nil
	}
	c.T = difference / se
	c.DF = (seA + seB) * (seA + seB) / (seA*seA/float64(len(a)-1) + seB*seB/float64(len(b)-1))
	c.P = 2 * (1 - studentCDF(math.Abs(c.T), c.DF))
	margin := studentQuantile(1-(1-confidence)/2, c.DF) * se
	c.Low, c.High = math.Expm1(difference-margin), math.Expm1(difference+margin)
	return c, nil
}

// logMoments are mean and sample variance of the logarithms.
func logMoments(sample []float64) (mean, variance float64) {
	for _, v := range sample {
		mean += math.Log(v)
	}
	mean /= float64(len(sample))
	for _, v := range sample {
		d := math.Log(v) - mean
		variance += d * d
	}
	return mean, variance / float64(len(sample)-1)
}

// A Verdict is what a Comparison shows.
type Verdict string

const (
	Faster   Verdict = "faster"
	Slower   Verdict = "slower"
	NotShown Verdict = "not shown" // the interval holds 0
)

// Verdict says whether b is shown to be faster than a. lessIsFaster is for times and costs.
func (c Comparison) Verdict(lessIsFaster bool) Verdict {
	switch {
	case c.Low > 0 && !lessIsFaster, c.High < 0 && lessIsFaster:
		return Faster
	case c.High < 0, c.Low > 0:
		return Slower
	}
	return NotShown
}

// Interleave is the order of n runs of each side: A B B A A B B A ..., so that a drift of the machine falls on both alike. True is B.
func Interleave(n int) []bool {
	order := make([]bool, 0, 2*n)
	for i := range n {
		first := i%2 == 1
		order = append(order, first, !first)
	}
	return order
}

// InTurn returns all in the order of a round: forward in round 0 and every other one, backward in those between, for the same reason as Interleave.
func InTurn[T any](all []T, round int) []T {
	all = slices.Clone(all)
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// studentCDF is P(T <= t) of Student's distribution.
func studentCDF(t, df float64) float64 {
	tail := betaInc(df/2, 0.5, df/(df+t*t)) / 2
	if t < 0 {
		return tail
	}
	return 1 - tail
}

// studentQuantile is the t with studentCDF(t) = p, for p of 0.5 to 1.
func studentQuantile(p, df float64) float64 {
	low, high := 0.0, 1.0
	for studentCDF(high, df) < p {
		high *= 2
	}
	for range 200 {
		middle := (low + high) / 2
		if studentCDF(middle, df) < p {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}

// betaInc is the regularized incomplete beta function I_x(a, b), by its continued fraction (Abramowitz and Stegun 26.5.8), which
// converges fast for x below (a+1)/(a+b+2); beyond it the symmetry I_x(a, b) = 1 - I_1-x(b, a) helps.
func betaInc(a, b, x float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2):
		return 1 - betaInc(b, a, 1-x)
	}
	lgA, _ := math.Lgamma(a)
	lgB, _ := math.Lgamma(b)
	lgAB, _ := math.Lgamma(a + b)
	front := math.Exp(lgAB-lgA-lgB+a*math.Log(x)+b*math.Log1p(-x)) / a
	return front / betaFraction(a, b, x)
}

// betaFraction is 1 + d1/(1 + d2/(1 + ...)), from the back: with this many terms it is exact to the last digits for all that a
// comparison asks.
func betaFraction(a, b, x float64) float64 {
	const terms = 400
	value := 1.0
	for n := terms; n >= 1; n-- {
		m := float64(n / 2)
		var d float64
		if n%2 == 0 {
			d = m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		} else {
			d = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		value = 1 + d/value
	}
	return value
}
