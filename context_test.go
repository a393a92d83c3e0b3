package felix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestWriteAndFindContext(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if _, err := FindContext(); !errors.Is(err, ErrNoContext) {
		t.Errorf("in an empty home: %v", err)
	}
	want := Ready{Listen: "127.0.0.1:5000", Ports: []uint16{5001, 5002}, Admin: "127.0.0.1:8080", CAFile: "/ca.pem", PID: os.Getpid()}
	remove, err := WriteContext(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := FindContext(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, %v, want %+v", got, err, want)
	}
	dir, _ := contextDir()
	content, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("local-%d.json", os.Getpid())))
	const golden = `{"listen":"127.0.0.1:5000","ports":[5001,5002],"admin":"127.0.0.1:8080","ca_file":"/ca.pem","pid":%d}` + "\n"
	if err != nil || string(content) != fmt.Sprintf(golden, os.Getpid()) {
		t.Errorf("the file holds %s, %v", content, err)
	}
	remove()
	if _, err := FindContext(); !errors.Is(err, ErrNoContext) {
		t.Errorf("after it was removed: %v", err)
	}
}

func TestNoHomeIsAnError(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	if _, err := WriteContext(Ready{Listen: "x", PID: 1}); err == nil {
		t.Error("a context was written nowhere")
	}
	if _, err := FindContext(); !errors.Is(err, ErrNoContext) {
		t.Errorf("found without a home: %v", err)
	}
}

func TestFindContextPrefersTheNewestAlive(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, age time.Duration) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		at := certTime.Add(-age)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("local-1.json", `{"listen":"a:1","pid":1}`, time.Hour)
	write("local-2.json", `{"listen":"a:2","pid":2}`, time.Minute)
	write("local-3.json", `{"listen":"a:3","pid":3}`, time.Second) // dead
	write("local-4.json", `{"listen":`, 0)                         // damaged
	write("local-x.json", `{"listen":"a:5"}`, 0)                   // of somebody else
	write("remote.json", `{"listen":"a:6"}`, 0)
	alive := func(pid int) bool { return pid != 3 }
	got, err := findContext(dir, alive)
	if err != nil || got.Listen != "a:2" {
		t.Errorf("found %+v, %v, want a:2", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "local-3.json")); !os.IsNotExist(err) {
		t.Errorf("the note of a dead process is left: %v", err)
	}
	for _, name := range []string{"local-1.json", "local-4.json", "local-x.json", "remote.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := findContext(dir, func(int) bool { return false }); !errors.Is(err, ErrNoContext) {
		t.Errorf("with nobody alive: %v", err)
	}
}

func TestAlive(t *testing.T) {
	if !alive(os.Getpid()) || !alive(1) {
		t.Error("a running process is taken for dead")
	}
	if alive(1 << 30) {
		t.Error("a process that cannot exist is taken for alive")
	}
}
