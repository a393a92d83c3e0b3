package interop

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// published is the client under test, as the package registry names it.
const (
	published        = "felix-client"
	publishedVersion = "0.6.2"
)

//go:embed scripts/*.py
var scripts embed.FS

// A toolbox is what the tests of a run share. It does not change once they run.
type toolbox struct {
	dir     string // everything below; removed at the end
	felixd  string // the broker
	python  string // the interpreter of the virtual environment
	scripts string // directory with the scripts
	missing string // why the published client cannot be run; empty when it can
}

// tools is made by TestMain, before the first test.
var tools toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run()) // names only: nothing is run
	}
	dir, err := os.MkdirTemp("", "felix-interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	end := func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}
	required := os.Getenv("FELIX_INTEROP") == "require"
	tools, err = makeTools(dir, required)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		end(1)
	}
	if tools.missing != "" {
		fmt.Println("interop: skipped:", tools.missing)
		if required {
			fmt.Fprintln(os.Stderr, "interop: FELIX_INTEROP=require makes that a failure")
			end(1)
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(end))
}

// makeTools builds felixd and makes the virtual environment. An error is a fault of ours; that the published client cannot be had is told
// in missing.
func makeTools(dir string, required bool) (toolbox, error) {
	t := toolbox{
		dir:     dir,
		felixd:  filepath.Join(dir, "felixd"),
		python:  filepath.Join(dir, "venv", "bin", "python"),
		scripts: filepath.Join(dir, "scripts"),
	}
	if testing.Short() && !required {
		t.missing = "-short leaves out what installs a package"
		return t, nil
	}
	if t.missing = installPublished(filepath.Join(dir, "venv"), t.python); t.missing != "" {
		return t, nil
	}
	if err := os.CopyFS(dir, scripts); err != nil {
		return t, err
	}
	build := []string{"build", "-o", t.felixd}
	if raceEnabled {
		build = append(build, "-race")
	}
	if out, err := run(5*time.Minute, os.Environ(), "go", append(build, "felix/cmd/felixd")...); err != nil {
		return t, fmt.Errorf("felixd does not build: %w\n%s", err, out)
	}
	return t, nil
}

// installPublished makes a virtual environment with the published client and returns why it could not, in one line.
func installPublished(venv, python string) (missing string) {
	python3, err := exec.LookPath("python3")
	if err != nil {
		return "python3 is not installed"
	}
	if out, err := run(2*time.Minute, cleanEnviron(os.Environ()), python3, "-m", "venv", venv); err != nil {
		return fmt.Sprintf("python3 -m venv failed (%v): %s", err, lastLine(out))
	}
	environ := append(cleanEnviron(os.Environ()), "PIP_NO_INPUT=1", "PIP_DISABLE_PIP_VERSION_CHECK=1")
	out, err := run(3*time.Minute, environ, python, "-m", "pip", "install", "--quiet", "--retries", "2", "--timeout", "20",
		"--only-binary", ":all:", published+"=="+publishedVersion)
	if err != nil {
		return fmt.Sprintf("pip install %s==%s failed (%v): %s", published, publishedVersion, err, lastLine(out))
	}
	return ""
}

// needClient skips the test when the published client cannot be run.
func needClient(t *testing.T) {
	t.Helper()
	if tools.missing != "" {
		t.Skip(tools.missing)
	}
}

// run runs a program to its end, at most for bound, and returns what it printed.
func run(bound time.Duration, environ []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environ
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("not finished after %v", bound)
	}
	return string(out), err
}

// cleanEnviron returns environ without the variables that tune a broker or a client.
func cleanEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, "FELIX_") })
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// The published client must not be changed, and a test that silently ran another version would prove nothing.
func TestPublishedClientIsTheOneNamed(t *testing.T) {
	needClient(t)
	d := startDriver(t, synchronous)
	if d.version != publishedVersion || d.module != publishedVersion {
		t.Fatalf("version %q, module %q; want %q", d.version, d.module, publishedVersion)
	}
}

func TestMissingClientIsToldInOneLine(t *testing.T) {
	venv := filepath.Join(t.TempDir(), "venv")
	t.Setenv("PATH", t.TempDir())
	missing := installPublished(venv, filepath.Join(venv, "bin", "python"))
	if missing == "" || strings.Contains(missing, "\n") {
		t.Fatalf("without python3 on the PATH the reason is %q", missing)
	}
	if _, err := os.Stat(venv); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("something was made at %s: %v", venv, err)
	}
}
