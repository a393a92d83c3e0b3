package load

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sh is a broker that is a shell script. The flags of a broker are its arguments.
func sh(script string) ProcessConfig {
	return ProcessConfig{Command: []string{"/bin/sh", "-c", script, "broker"}}
}

// readyScript writes the ready file, whose name is the 8th argument, and goes on.
const readyScript = `echo '{"listen":"127.0.0.1:5","ports":[6,7],"admin":"127.0.0.1:8","ca_file":"ca.pem","pid":9}' > "$8.new"; mv "$8.new" "$8"; `

func TestProcess(t *testing.T) {
	t.Setenv("FELIX_LISTEN", "1.2.3.4:5") // stays here
	t.Setenv("TMPDIR", t.TempDir())
	c := sh(readyScript + `trap 'exit 0' TERM; echo "$FELIX_LISTEN $MINE $9" > "$6.env"; while :; do sleep 0.01; done`)
	c.Env, c.Args = []string{"MINE=yes"}, []string{"--more"}
	c.DataDir = filepath.Join(t.TempDir(), "data")
	p, err := StartProcess(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if f := p.Felix(); f.Addr != "127.0.0.1:5" || f.Admin != "127.0.0.1:8" || f.CAFile != "ca.pem" || f.Owners != 2 {
		t.Errorf("%+v", f)
	}
	wait := time.NewTicker(time.Millisecond)
	defer wait.Stop()
	for deadline := time.After(patience); ; {
		content, err := os.ReadFile(c.DataDir + ".env")
		if text := string(content); err == nil && text != "" {
			if text != " yes --more\n" {
				t.Errorf("its environment and arguments: %q", text)
			}
			break
		}
		select {
		case <-wait.C:
		case <-deadline:
			t.Fatal("the process did nothing")
		}
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("again: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestProcessMistakes(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := StartProcess(t.Context(), sh("echo the disk is bad >&2; exit 3")); err == nil || !strings.Contains(err.Error(), "ended (exit status 3) before it was ready: the disk is bad") {
		t.Errorf("ends at once: %v", err)
	}
	if _, err := StartProcess(t.Context(), ProcessConfig{Command: []string{"/nowhere/felixd"}}); err == nil {
		t.Error("a program that is not there was started")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := StartProcess(ctx, sh("exec sleep 60")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("never ready: %v", err)
	}
	p, err := StartProcess(t.Context(), sh(readyScript+"exec sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	<-p.Ended()
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "had ended by itself (signal: killed)") {
		t.Errorf("killed: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestTail(t *testing.T) {
	var end tail
	for range 100 {
		end.Write([]byte(strings.Repeat("x", 1000)))
	}
	end.Write([]byte("last words\n"))
	if text := end.String(); len(text) > maxStderr || !strings.HasSuffix(text, "xlast words") {
		t.Errorf("%d bytes", len(text))
	}
}

func TestSyncTime(t *testing.T) {
	dir := t.TempDir()
	if took, err := SyncTime(t.Context(), dir); err != nil || took <= 0 {
		t.Errorf("%v %v", took, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := SyncTime(t.Context(), filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a directory that is not there has a sync time")
	}
}
