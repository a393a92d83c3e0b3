package wire

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Records in this package are `(u32 len, payload)*`: the tail of a publish body without its count, and what an event frame without
// times carries.

// RecordHeadBytes is what a record takes besides its payload.
const RecordHeadBytes = 4

// AppendRecord appends one record to dst.
func AppendRecord(dst, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

// NextRecord takes the first record off records, which a Parse or CheckRecords has checked. payload is a view without spare capacity.
// At the end, and when the first record is not whole, both results are nil.
func NextRecord(records []byte) (payload, rest []byte) {
	if len(records) < RecordHeadBytes {
		return nil, nil
	}
	end := RecordHeadBytes + uint64(binary.BigEndian.Uint32(records))
	if end > uint64(len(records)) {
		return nil, nil
	}
	return records[RecordHeadBytes:end:end], records[end:]
}

// AllRecords ranges over checked records. Payloads are views of records.
func AllRecords(records []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(records) > 0 {
			var payload []byte
			payload, records = NextRecord(records)
			if payload == nil || !yield(payload) {
				return
			}
		}
	}
}

// CheckRecords checks that b starts with count whole records and returns the bytes they take. The error wraps ErrMalformed.
func CheckRecords(b []byte, count uint32) (sizeBytes int, err error) {
	return checkRecords(b, count, 0)
}

// checkRecords does the same for items with extra bytes in front of each length.
func checkRecords(b []byte, count uint32, extra uint64) (int, error) {
	head := extra + RecordHeadBytes
	if uint64(count) > uint64(len(b))/head {
		return 0, fmt.Errorf("%w: %d records declared, %d bytes left", ErrMalformed, count, len(b))
	}
	at, size := uint64(0), uint64(len(b))
	for i := range count {
		if size-at < head {
			return 0, fmt.Errorf("%w: record %d of %d starts after the end", ErrMalformed, i, count)
		}
		end := at + head + uint64(binary.BigEndian.Uint32(b[at+extra:]))
		if end > size {
			return 0, fmt.Errorf("%w: record %d of %d ends %d bytes after the end", ErrMalformed, i, count, end-size)
		}
		at = end
	}
	return int(at), nil
}
