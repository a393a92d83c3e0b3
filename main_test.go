package felix

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the generated parts of README.md and the files of testdata anew")

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests of the development context never touch the real one.
	home, err := os.MkdirTemp("", "felix-home-")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CONFIG_HOME", home)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(home)
		os.Exit(code)
	}))
}
