package session

import (
	"flag"
	"testing"
)

func TestCommandLine(t *testing.T) {
	flags := flag.NewFlagSet("x", flag.ContinueOnError)
	flags.String("o", "", "")
	flags.String("cells", "", "")
	flags.String("name", "", "")
	flags.Bool("peers", true, "")
	flags.Int("runs", 5, "")
	if err := flags.Parse([]string{"-o", "/somewhere/here", "-cells", "^lone|it's", "-peers=false", "-name", ""}); err != nil {
		t.Fatal(err)
	}
	if got, want := CommandLine("go run ./x", flags, "o"), `go run ./x -cells='^lone|it'\''s' -name='' -peers=false`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := CommandLine("x", flag.NewFlagSet("x", flag.ContinueOnError)); got != "x" {
		t.Errorf("no flags: %s", got)
	}
}
