package felix

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A journal is the file meta/catalog.journal: the commands that made the catalog, one to a line.
//
//	crc32c of the record, 8 hexadecimal digits, space, record, newline
//
// A line is synced before its command takes effect. A broken last line is a command that never did and is cut off; a
// broken line before others is damage, and the broker does not start on half a catalog. Blocks are allocated ahead of the
// lines, so that streams can be deleted when the disk is full.
type journal struct {
	path  string
	file  *os.File
	size  int64
	lines int
	ahead int64 // blocks are allocated up to here
	err   error // of the first write or sync that failed. What is on disk is not known then, so nothing follows it
}

// journalReserve is how much is allocated behind the last line: some hundred commands. It is filled up once half of it is used,
// as far as there is room.
const journalReserve = 64 << 10

// maxJournalLine bounds one record; a longer one is damage.
const maxJournalLine = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openJournal opens the journal of a data directory, making it when there is none, and returns its records.
func openJournal(path string) (j *journal, records [][]byte, err error) {
	j = &journal{path: path}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = writeFileSync(path, nil, 0o600)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the catalog %s cannot be read: %w; make it readable and writable for this user", path, plain(err))
	}
	records, whole, err := parseJournal(content)
	if err != nil {
		return nil, nil, fmt.Errorf("the catalog %s %w; restore it from a backup of the data directory", path, err)
	}
	j.file, err = os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("the catalog %s cannot be written: %w; make it writable for this user", path, plain(err))
	}
	j.size, j.lines = int64(whole), len(records)
	if whole < len(content) {
		// The cut is synced before anything is appended behind it.
		err = errors.Join(j.file.Truncate(j.size), j.file.Sync())
		if err != nil {
			j.file.Close()
			return nil, nil, fmt.Errorf("the broken end of the catalog %s cannot be cut off: %w", path, plain(err))
		}
	}
	j.allocate()
	return j, records, nil
}

// allocate reserves blocks for the next lines. It may fail: then lines get theirs when they are written.
func (j *journal) allocate() {
	if j.ahead-j.size < journalReserve/2 && unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, j.size, journalReserve) == nil {
		j.ahead = j.size + journalReserve
	}
}

// parseJournal returns the records of a journal and the length of its whole lines.
func parseJournal(content []byte) (records [][]byte, whole int, err error) {
	for rest := content; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		record, ok := parseJournalLine(line)
		if !ended || !ok {
			if ended && len(after) > 0 {
				return nil, 0, fmt.Errorf("is damaged in line %d, at byte %d", len(records)+1, whole)
			}
			break
		}
		records = append(records, record)
		whole += len(line) + 1
		rest = after
	}
	return records, whole, nil
}

func parseJournalLine(line []byte) (record []byte, ok bool) {
	if len(line) < 9 || len(line) > maxJournalLine || line[8] != ' ' {
		return nil, false
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	record = line[9:]
	return record, err == nil && uint32(sum) == crc32.Checksum(record, castagnoli)
}

func appendJournalLine(dst, record []byte) []byte {
	dst = fmt.Appendf(dst, "%08x ", crc32.Checksum(record, castagnoli))
	return append(append(dst, record...), '\n')
}

// Append makes a record durable. After an error every later one is refused.
func (j *journal) Append(record []byte) error {
	if j.err != nil {
		return j.err
	}
	line := appendJournalLine(nil, record)
	if bytes.IndexByte(record, '\n') >= 0 || len(line) > maxJournalLine {
		return fmt.Errorf("a catalog record of %d bytes does not fit a line", len(record))
	}
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		if outOfSpace(err) && j.file.Truncate(j.size) == nil {
			// Nothing of the line is left, or a broken end that the next start cuts off.
			j.ahead = j.size
			return fmt.Errorf("%s: %w; free space on the disk and try again", j.path, plain(err))
		}
		return j.fail(err)
	}
	if err := j.file.Sync(); err != nil {
		return j.fail(err)
	}
	j.size += int64(len(line))
	j.lines++
	j.allocate()
	return nil
}

func outOfSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

func (j *journal) fail(err error) error {
	j.err = fmt.Errorf("%s: %w; streams cannot be changed until the broker is restarted", j.path, plain(err))
	return j.err
}

// compact replaces the journal by a snapshot when that is much shorter. On a full disk it is left as it is.
func (j *journal) compact(snapshot [][]byte) error {
	if j.lines <= 2*len(snapshot)+100 {
		return nil
	}
	var content []byte
	for _, record := range snapshot {
		content = appendJournalLine(content, record)
	}
	if err := writeFileSync(j.path, content, 0o600); outOfSpace(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("the catalog %s cannot be compacted: %w", j.path, plain(err))
	}
	file, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the catalog %s cannot be opened: %w", j.path, plain(err))
	}
	j.file.Close()
	j.file, j.size, j.lines, j.ahead = file, int64(len(content)), len(snapshot), 0
	j.allocate()
	return nil
}

func (j *journal) close() error { return j.file.Close() }
