package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func near(t *testing.T, name string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > tolerance {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// The 97.5 % points of published tables.
func TestStudentQuantile(t *testing.T) {
	for df, want := range map[float64]float64{1: 12.7062, 2: 4.30265, 3: 3.18245, 5: 2.57058, 10: 2.22814, 18: 2.10092, 30: 2.04227, 100: 1.98397, 10000: 1.96020} {
		got := studentQuantile(0.975, df)
		near(t, "t", got, want, 1e-4)
		near(t, "p", studentCDF(got, df), 0.975, 1e-12)
		near(t, "-p", studentCDF(-got, df), 0.025, 1e-12)
	}
	near(t, "middle", studentCDF(0, 7), 0.5, 1e-15)
	near(t, "95 % with 9.5", studentCDF(1.8227, 9.5), 0.95, 1e-4)
}

func TestBetaInc(t *testing.T) {
	for _, x := range []float64{0.001, 0.1, 0.5, 0.9, 0.999} {
		near(t, "I(1,1)", betaInc(1, 1, x), x, 1e-14)
		near(t, "I(2,1)", betaInc(2, 1, x), x*x, 1e-14)
		near(t, "I(1/2,1/2)", betaInc(0.5, 0.5, x), 2/math.Pi*math.Asin(math.Sqrt(x)), 1e-12)
		near(t, "I(2,3)", betaInc(2, 3, x), x*x*(6-8*x+3*x*x), 1e-13)
	}
}

// exp makes a sample whose logarithms are the published data.
func exp(sample []float64) []float64 {
	out := make([]float64, len(sample))
	for i, v := range sample {
		out[i] = math.Exp(v)
	}
	return out
}

// Samples that are worked through in the literature on Welch's test: three pairs with equal and unequal variances and sizes.
func TestCompareKnown(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b     []float64
		t, df, p float64
	}{
		"equal variances": {
			[]float64{27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4},
			[]float64{27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4},
			2.46, 25.0, 0.021,
		},
		"unequal sizes": {
			[]float64{17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8},
			[]float64{21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8, 20.7, 21.7, 21.5, 22.5, 23.6, 21.5, 22.5, 23.5, 21.5, 21.8},
			1.57, 9.9, 0.149,
		},
		"unequal variances": {
			[]float64{19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0},
			[]float64{28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0, 23.9, 21.6, 24.3, 20.4, 24.0, 13.2},
			2.22, 24.5, 0.036,
		},
	} {
		c, err := Compare(exp(tt.a), exp(tt.b))
		if err != nil {
			t.Fatal(err)
		}
		near(t, name+": t", c.T, tt.t, 0.006)
		near(t, name+": df", c.DF, tt.df, 0.06)
		near(t, name+": p", c.P, tt.p, 0.0006)
	}
}

func TestCompare(t *testing.T) {
	// By hand: logarithms 0, 2 and 1, 3, 5; means 1 and 3, variances 2 and 4; se^2 = 1 + 4/3 = 7/3.
	c, err := Compare(exp([]float64{0, 2}), exp([]float64{1, 3, 5}))
	if err != nil {
		t.Fatal(err)
	}
	near(t, "mean a", c.MeanA, math.E, 1e-12)
	near(t, "effect", c.Effect, math.Exp(2)-1, 1e-12)
	near(t, "t", c.T, 2/math.Sqrt(7.0/3), 1e-12)
	near(t, "df", c.DF, (49.0/9)/(1+(16.0/9)/2), 1e-12)
	if c.Verdict(false) != NotShown || c.NA != 2 || c.NB != 3 {
		t.Errorf("%+v", c)
	}
	same := []float64{10, 10, 10}
	if c, err = Compare(same, same); err != nil || c.Verdict(false) != NotShown || c.P != 1 || c.Effect != 0 {
		t.Errorf("equal: %+v %v", c, err)
	}
	for _, bad := range [][2][]float64{{{1}, {1, 2}}, {{1, 2}, nil}, {{1, 0}, {1, 2}}, {{1, 2}, {1, math.NaN()}}, {{1, 2}, {-1, 2}}, {{1, math.Inf(1)}, {1, 2}}} {
		if _, err := Compare(bad[0], bad[1]); err == nil {
			t.Errorf("%v was compared", bad)
		}
	}
	a, b := []float64{100, 101, 99, 100}, []float64{110, 111, 109, 110}
	up, _ := Compare(a, b)
	down, _ := Compare(b, a)
	for name, got := range map[string]Verdict{
		string(Faster): up.Verdict(false), string(Slower): up.Verdict(true), string(Slower) + " ": down.Verdict(false), string(Faster) + " ": down.Verdict(true),
	} {
		if want := Verdict(name[:6]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if up.Low <= 0.05 || up.High >= 0.15 || up.P > 0.001 {
		t.Errorf("%+v", up)
	}
}

// Of two sides that do not differ, one in twenty is shown to; of two that differ by two standard errors of a run, most are.
func TestCompareRates(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	sample := func(mean, spread float64, n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = math.Exp(math.Log(mean) + spread*random.NormFloat64())
		}
		return out
	}
	shown, found, covered := 0, 0, 0
	const rounds = 4000
	for range rounds {
		c, _ := Compare(sample(100, 0.02, 8), sample(100, 0.05, 12))
		if c.Verdict(false) != NotShown {
			shown++
		}
		c, _ = Compare(sample(100, 0.05, 10), sample(110, 0.05, 10))
		if c.Verdict(false) == Faster {
			found++
		}
		if c.Low <= 0.1 && c.High >= 0.1 {
			covered++
		}
	}
	near(t, "false alarms", float64(shown)/rounds, 0.05, 0.015)
	near(t, "coverage", float64(covered)/rounds, 0.95, 0.015)
	if float64(found)/rounds < 0.95 {
		t.Errorf("10 %% were found in %d of %d", found, rounds)
	}
}

func TestInTurn(t *testing.T) {
	all := []string{"A", "B", "C"}
	for round, want := range []string{"ABC", "CBA", "ABC", "CBA"} {
		if got := strings.Join(InTurn(all, round), ""); got != want {
			t.Errorf("round %d: %s", round, got)
		}
	}
	if strings.Join(all, "") != "ABC" || len(InTurn([]string(nil), 1)) != 0 {
		t.Errorf("%v", all)
	}
}

func TestInterleave(t *testing.T) {
	if got, want := Interleave(4), []bool{false, true, true, false, false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if len(Interleave(0)) != 0 {
		t.Error("none")
	}
}
