package felix

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// identity is what makes a data directory this broker's: the node id that clients are told and the secret from
// which the keys of its sockets are derived. Both are made once and kept in meta/, so that a restarted broker
// is recognised: its stateless resets are believed and its Retry tokens are still good.
type identity struct {
	nodeID                string
	resetSecret, tokenKey [32]byte
}

// dataDir is an open data directory. It is locked against other brokers until close.
type dataDir struct {
	path      string // absolute
	temporary bool   // made by openDataDir; removed by close
	lock      *os.File
}

// openDataDir creates path when it is missing and locks it. An empty path makes a temporary directory that close
// removes.
func openDataDir(path string) (*dataDir, error) {
	d := &dataDir{path: path}
	if path == "" {
		made, err := os.MkdirTemp("", "felix-")
		if err != nil {
			return nil, fmt.Errorf("a temporary data directory cannot be made: %w; set data to a directory that this user can write", plain(err))
		}
		d.path, d.temporary = made, true
	}
	absolute, err := filepath.Abs(d.path)
	if err != nil {
		return nil, fmt.Errorf("data is %q: %w; give an absolute path", path, plain(err))
	}
	d.path = absolute
	if err := os.MkdirAll(d.meta(""), 0o700); err != nil {
		return nil, d.unusable(err)
	}
	d.lock, err = os.OpenFile(d.meta("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, d.unusable(err)
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := d.holder()
		d.lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data is %q, which another running broker uses%s; stop that broker or give this one a directory of its own", d.path, holder)
		}
		return nil, d.unusable(err)
	}
	// Who holds the lock is for people; the lock does not depend on it.
	if err := d.lock.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(d.lock, "%d\n", os.Getpid())
	}
	return d, nil
}

// holder names the process that wrote itself into the lock file, as far as it has.
func (d *dataDir) holder() string {
	line := make([]byte, 20)
	n, _ := d.lock.Read(line) // at the end of the file with an error
	if pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n]))); err == nil {
		return fmt.Sprintf(" (pid %d)", pid)
	}
	return ""
}

// meta returns the path of a file in the directory of metadata.
func (d *dataDir) meta(name string) string { return filepath.Join(d.path, "meta", name) }

// unusable says that the directory cannot be worked with.
func (d *dataDir) unusable(err error) error {
	return fmt.Errorf("data is %q, which cannot be used: %w; make it readable and writable for this user or choose another directory", d.path, plain(err))
}

// close unlocks the directory, and removes it when it was temporary.
func (d *dataDir) close() error {
	err := d.lock.Close() // releases the lock
	if d.temporary {
		err = errors.Join(err, os.RemoveAll(d.path))
	}
	return err
}

// identity reads the node id and the secret, or makes them in a new directory. A file that is there and cannot be
// understood is never replaced: it may hold what clients already know.
func (d *dataDir) identity() (identity, error) {
	var id identity
	secret, err := d.keep("secret", 0o600, 64)
	if err != nil {
		return id, err
	}
	node, err := d.keep("node-id", 0o644, 8)
	if err != nil {
		return id, err
	}
	id.nodeID = "felix-" + node
	id.resetSecret = derive(secret, "stateless reset")
	id.tokenKey = derive(secret, "retry token")
	return id, nil
}

// keep returns the random hexadecimal digits kept in a file of meta/, making them first when there is no file.
func (d *dataDir) keep(name string, perm fs.FileMode, digits int) (string, error) {
	file := d.meta(name)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		random := make([]byte, digits/2)
		rand.Read(random) // never fails: it ends the process instead
		content = []byte(hex.EncodeToString(random) + "\n")
		err = writeFileSync(file, content, perm)
	}
	if err != nil {
		return "", d.unusable(err)
	}
	text := strings.TrimSpace(string(content))
	if _, err := hex.DecodeString(text); err != nil || len(text) != digits {
		return "", fmt.Errorf("%s holds %d bytes that are not %d hexadecimal digits; restore it from a copy, or delete it if clients may take this broker for a new one", file, len(content), digits)
	}
	return text, nil
}

// derive returns a key of its own for each purpose.
func derive(secret, purpose string) (key [32]byte) {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(purpose))
	mac.Sum(key[:0])
	return key
}

// writeFileSync replaces a file as a whole: after a crash at any moment the old or the new content is there, and
// after it returned the new one, whatever happens to the power.
func writeFileSync(file string, content []byte, perm fs.FileMode) (err error) {
	dir := filepath.Dir(file)
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			temporary.Close()
			os.Remove(temporary.Name())
		}
	}()
	if err := temporary.Chmod(perm); err != nil {
		return err
	}
	if _, err := temporary.Write(content); err != nil {
		return err
	}
	if err := temporary.Sync(); err != nil {
		return err
	}
	if err := temporary.Close(); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), file); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// sameContent reports whether a file already holds content, so that it need not be written again.
func sameContent(file string, content []byte) bool {
	held, err := os.ReadFile(file)
	return err == nil && bytes.Equal(held, content)
}

// plain reduces an error of the operating system to its reason: the operation and the path are in our sentence.
func plain(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	var linkErr *os.LinkError
	if errors.As(err, &linkErr) {
		return linkErr.Err
	}
	return err
}
