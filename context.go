package felix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Ready is what a running broker tells about itself: the content of felixd's ready file and of its development
// context.
type Ready struct {
	Listen string   `json:"listen"` // host:port of the shared port
	Ports  []uint16 `json:"ports"`  // own ports of the listening cores; empty when there is only the shared one
	Admin  string   `json:"admin"`  // host:port of the admin listener, "" when there is none
	CAFile string   `json:"ca_file"`
	PID    int      `json:"pid"`
}

// WriteFile writes r as JSON to file, whole or not at all.
func (r Ready) WriteFile(file string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeFileSync(file, append(content, '\n'), 0o644)
}

// contextDir is where felixd leaves a note of itself for the tools of the same user.
func contextDir() (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "felix", "contexts"), nil
}

// WriteContext leaves r where FindContext looks, and returns a function that takes it away again. Only felixd
// calls it: embedded brokers and those of tests do not offer themselves to the command line.
func WriteContext(r Ready) (remove func(), err error) {
	dir, err := contextDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, plainPath(dir, err)
	}
	file := filepath.Join(dir, fmt.Sprintf("local-%d.json", r.PID))
	if err := r.WriteFile(file); err != nil {
		return nil, plainPath(file, err)
	}
	return func() { os.Remove(file) }, nil
}

func plainPath(path string, err error) error { return fmt.Errorf("%s: %w", path, plain(err)) }

// ErrNoContext is returned by FindContext when no development broker of this user runs.
var ErrNoContext = errors.New("no development broker of this user is running")

// FindContext returns the note of the development broker of this user that was started last and still runs. Notes
// of processes that are gone are removed on the way.
func FindContext() (Ready, error) {
	dir, err := contextDir()
	if err != nil {
		return Ready{}, fmt.Errorf("%w: %w", ErrNoContext, err)
	}
	return findContext(dir, alive)
}

// findContext is FindContext in dir, with alive saying which processes run.
func findContext(dir string, alive func(pid int) bool) (Ready, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Ready{}, fmt.Errorf("%w: %w", ErrNoContext, plainPath(dir, err))
	}
	type note struct {
		file    string
		written time.Time
	}
	var notes []note
	for _, entry := range entries {
		pid, ok := contextPID(entry.Name())
		if !ok {
			continue
		}
		file := filepath.Join(dir, entry.Name())
		if !alive(pid) {
			os.Remove(file) // another tool may have been faster
			continue
		}
		if info, err := entry.Info(); err == nil {
			notes = append(notes, note{file, info.ModTime()})
		}
	}
	slices.SortFunc(notes, func(a, b note) int { return b.written.Compare(a.written) })
	for _, n := range notes {
		var r Ready
		content, err := os.ReadFile(n.file)
		if err == nil && json.Unmarshal(content, &r) == nil && r.Listen != "" {
			return r, nil
		}
	}
	return Ready{}, ErrNoContext
}

// contextPID returns the process that left the note of that name.
func contextPID(name string) (pid int, ok bool) {
	text, ok := strings.CutPrefix(name, "local-")
	if !ok {
		return 0, false
	}
	if text, ok = strings.CutSuffix(text, ".json"); !ok {
		return 0, false
	}
	pid, err := strconv.Atoi(text)
	return pid, err == nil && pid > 0
}

// alive reports whether a process runs, whoever it belongs to.
func alive(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
