package felix

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mustOpenDataDir(t *testing.T, path string) *dataDir {
	t.Helper()
	d, err := openDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestIdentityIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	d := mustOpenDataDir(t, path)
	first, err := d.identity()
	if err != nil {
		t.Fatal(err)
	}
	if first.resetSecret == first.tokenKey || first.resetSecret == [32]byte{} || first.nodeID == "felix-" {
		t.Errorf("keys are not distinct, or empty: %+v", first)
	}
	info, err := os.Stat(d.meta("secret"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("secret: mode %v, %v", info.Mode(), err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpenDataDir(t, path)
	defer d.close()
	if second, err := d.identity(); err != nil || second != first {
		t.Errorf("after a restart %+v, %v, want %+v", second, err, first)
	}
	other := mustOpenDataDir(t, t.TempDir())
	defer other.close()
	if third, err := other.identity(); err != nil || third.nodeID == first.nodeID || third.resetSecret == first.resetSecret {
		t.Errorf("another directory has the same identity: %+v, %v", third, err)
	}
}

func TestDamagedIdentityIsRefused(t *testing.T) {
	for _, content := range []string{"", "abc", strings.Repeat("g", 64), strings.Repeat("a", 66)} {
		d := mustOpenDataDir(t, t.TempDir())
		if err := os.WriteFile(d.meta("secret"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := d.identity()
		if err == nil || !strings.Contains(err.Error(), d.meta("secret")) || !strings.Contains(err.Error(), "restore it") {
			t.Errorf("%q: %v", content, err)
		}
		if kept, _ := os.ReadFile(d.meta("secret")); string(kept) != content {
			t.Errorf("%q was replaced by %q", content, kept)
		}
		d.close()
	}
}

func TestDataDirIsForOne(t *testing.T) {
	path := t.TempDir()
	d := mustOpenDataDir(t, path)
	if _, err := openDataDir(path); err == nil || !strings.Contains(err.Error(), "another running broker uses") {
		t.Errorf("a second broker: %v", err)
	}
	d.close()
	mustOpenDataDir(t, path).close()
}

func TestTemporaryDataDir(t *testing.T) {
	d := mustOpenDataDir(t, "")
	if _, err := d.identity(); err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.path); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", d.path, err)
	}
}

func TestUnusableDataDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openDataDir(file)
	if err == nil || err.Error() != `data is "`+file+`", which cannot be used: not a directory; make it readable and writable for this user or choose another directory` {
		t.Errorf("a file: %v", err)
	}
	if os.Getuid() == 0 {
		return // root reads everything
	}
	locked := filepath.Join(t.TempDir(), "locked")
	if err := os.Mkdir(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := openDataDir(locked); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a directory of somebody else: %v", err)
	}
}

func TestWriteFileSync(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	for _, content := range []string{"one", "two"} {
		if err := writeFileSync(file, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != content {
			t.Errorf("got %q, want %q", got, content)
		}
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := writeFileSync(filepath.Join(dir, "f", "g"), nil, 0o600); err == nil {
		t.Error("a file below a file was written")
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeFileSync(filepath.Join(dir, "taken"), nil, 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}
