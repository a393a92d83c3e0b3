package crash

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestKill runs FELIX_CRASH_CYCLES cycles, 20 without it, 3 with -short. FELIX_CRASH_SEED repeats the choices of a run.
func TestKill(t *testing.T) {
	number := func(name string, standard uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return standard
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q; give a number", name, text)
		}
		return n
	}
	cycles := uint64(20)
	if testing.Short() {
		cycles = 3
	}
	dir, err := os.MkdirTemp("", "felix-crash-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was left is in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	felixd, err := Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	seed := number("FELIX_CRASH_SEED", rand.Uint64N(1e6))
	t.Logf("FELIX_CRASH_SEED=%d", seed)
	report, err := Run(t.Context(), Config{
		Felixd: felixd, Dir: dir, Cycles: int(number("FELIX_CRASH_CYCLES", cycles)), Seed: seed,
		Args: []string{"--segment-bytes", "4 MiB"}, // so that cycles cross segments
		Logf: t.Logf,
	})
	t.Log(report)
	if err != nil {
		t.Fatal(err)
	}
	if report.Acked == 0 || report.Seen == 0 || report.Read == 0 {
		t.Error("nothing was tested")
	}
}
