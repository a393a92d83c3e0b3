package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// profiles are what Profile takes: the file, and the path of the admin listener. The seconds of a profile of events count what
// happened within them.
var profiles = [...]struct{ name, path string }{
	{"cpu", "profile"}, {"alloc", "allocs"}, {"mutex", "mutex"}, {"block", "block"},
}

// Profile takes CPU, allocation, mutex and block profiles of a broker over the same time, at most a minute, and leaves them in dir as
// cpu.pprof, alloc.pprof, mutex.pprof and block.pprof, each with its top 20 as text beside it. Mutex and block profiles are empty unless
// the broker was started to take them.
func Profile(ctx context.Context, admin, dir string, took time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	control := newAdminControl(admin, "", "")
	control.http.Timeout = took + adminTimeout
	errs := make(chan error, len(profiles))
	for _, p := range profiles {
		go func() { errs <- control.saveProfile(ctx, p.path, filepath.Join(dir, p.name+".pprof"), took) }()
	}
	var first error
	for range profiles {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return first
	}
	for _, p := range profiles {
		if err := topOf(ctx, filepath.Join(dir, p.name)); err != nil {
			return err
		}
	}
	return nil
}

// saveProfile keeps one profile.
func (a *adminControl) saveProfile(ctx context.Context, path, file string, took time.Duration) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/debug/pprof/%s?seconds=%d", a.base, path, max(int(took.Seconds()), 1)), nil)
	if err != nil {
		return err
	}
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return refused("profile "+path, response.StatusCode, answer)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, response.Body)
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	return err
}

// topOf writes the top 20 of a profile as text: by what functions did themselves, and by what they and those they called did.
func topOf(ctx context.Context, name string) error {
	out, err := os.Create(name + ".txt")
	if err != nil {
		return err
	}
	defer out.Close()
	for _, order := range []string{"-flat", "-cum"} {
		cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", order, "-nodecount=20", "-symbolize=none", name+".pprof")
		cmd.Stdout = out
		cmd.Stderr = out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go tool pprof of %s.pprof: %w; its text in %s.txt says more", name, err, name)
		}
		fmt.Fprintln(out)
	}
	return nil
}
