package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
)

// fields writes or reads the fields of one JSON object. A message lists its fields once, for both directions, in the order in which they
// are written. Optional fields are left out when they are absent; a reader takes null for absent.
type fields struct {
	out   []byte // writing: the frame so far
	empty bool   // writing: no field of the present object stands there yet. The top-level object starts with its type

	in      *object // reading; nil when writing
	problem string  // reading: the first thing wrong, as a sentence. Nothing is read after it
}

// value returns the raw value of a field. It is nil when the field is absent, which is a problem if it is required.
func (f *fields) value(name string, required bool) []byte {
	if f.problem != "" {
		return nil
	}
	value, ok := f.in.find(name)
	switch {
	case !ok:
		f.fail(name, "stands there twice")
	case value == nil && required:
		f.fail(name, "is missing")
	}
	return value
}

func (f *fields) fail(name, problem string) {
	if f.problem == "" {
		f.problem = fmt.Sprintf("field %q %s", name, problem)
	}
}

// key starts the next field. Names are plain ASCII.
func (f *fields) key(name string) {
	if !f.empty {
		f.out = append(f.out, ',')
	}
	f.empty = false
	f.out = append(f.out, '"')
	f.out = append(f.out, name...)
	f.out = append(f.out, '"', ':')
}

// typeField reads the name of the message's type.
func (f *fields) typeField() string {
	text, _ := f.text("type", true)
	return string(text)
}

// text reads a string. ok is false when there is none.
func (f *fields) text(name string, required bool) (text []byte, ok bool) {
	value := f.value(name, required)
	if value == nil {
		return nil, false
	}
	if value[0] != '"' {
		f.fail(name, "must be a string")
		return nil, false
	}
	return unescaped(value[1 : len(value)-1]), true
}

// str is a required string.
func (f *fields) str(name string, v *string) {
	if f.in == nil {
		f.key(name)
		f.out = appendJSONString(f.out, *v)
		return
	}
	text, _ := f.text(name, true)
	*v = string(text)
}

// optStr is a string whose empty value stands for absent.
func (f *fields) optStr(name string, v *string) {
	if f.in == nil {
		if *v != "" {
			f.str(name, v)
		}
		return
	}
	text, _ := f.text(name, false)
	*v = string(text)
}

// num is a required integer from 0 to the largest value of its type.
func num[T ~uint8 | ~uint16 | ~uint32 | ~uint64](f *fields, name string, v *T) {
	if f.in == nil {
		f.key(name)
		f.out = strconv.AppendUint(f.out, uint64(*v), 10)
		return
	}
	if value := f.value(name, true); value != nil {
		*v = T(f.integer(name, value, uint64(^T(0))))
	}
}

// optNum is the same as num, but may be absent.
func optNum[T ~uint8 | ~uint16 | ~uint32 | ~uint64](f *fields, name string, v *T, has *bool) {
	if f.in == nil {
		if *has {
			num(f, name, v)
		}
		return
	}
	if value := f.value(name, false); value != nil {
		*v, *has = T(f.integer(name, value, uint64(^T(0)))), true
	}
}

// optNonzero is a number whose 0 stands for absent.
func optNonzero[T ~uint8 | ~uint16 | ~uint32 | ~uint64](f *fields, name string, v *T) {
	has := *v != 0
	optNum(f, name, v, &has)
}

func (f *fields) integer(name string, value []byte, most uint64) uint64 {
	v, ok := parseUint(value, most)
	if !ok {
		f.fail(name, "must be an integer from 0 to "+strconv.FormatUint(most, 10))
	}
	return v
}

// parseUint reads digits, and nothing but digits: 1.0 and 1e3 are no integers here.
func parseUint(value []byte, most uint64) (v uint64, ok bool) {
	for _, c := range value {
		d := uint64(c - '0')
		if c < '0' || c > '9' || v > (most-d)/10 || d > most {
			return 0, false
		}
		v = v*10 + d
	}
	return v, len(value) > 0
}

// laxRequestID is a request id of a message that will be refused anyway: what is no integer counts as absent.
func (f *fields) laxRequestID(v *uint64, has *bool) {
	if f.in == nil {
		optNum(f, "request_id", v, has)
		return
	}
	if f.problem != "" {
		return
	}
	if value, _ := f.in.find("request_id"); value != nil {
		*v, *has = parseUint(value, 1<<64-1)
	}
}

// features are one or two words (FeaturesOf).
func (f *fields) features(lowName, hiName string, v *Features, has *bool) {
	low, hi := v.Low(), v.Hi()
	optNum(f, lowName, &low, has)
	hasHi := *has && hi != 0
	if f.in != nil {
		if !*has || !Features(low).Has(FeatureSecondWord) {
			*v = Features(low)
			return
		}
		hi = 0
	}
	optNum(f, hiName, &hi, &hasHi)
	*v = FeaturesOf(low, hi)
}

// bytes is a required byte string.
func (f *fields) bytes(name string, v *[]byte) {
	if f.in == nil {
		f.key(name)
		f.out = appendBase64(f.out, *v)
		return
	}
	if text, ok := f.text(name, true); ok {
		*v = make([]byte, 0, base64.StdEncoding.DecodedLen(len(text)))
		if *v, ok = decodeBase64(*v, text); !ok {
			f.fail(name, notBase64)
		}
	}
}

// optBytes is a byte string that may be absent. An empty one is not.
func (f *fields) optBytes(name string, v *[]byte, has *bool) {
	if f.in == nil {
		if *has {
			f.bytes(name, v)
		}
		return
	}
	if f.value(name, false) != nil {
		*has = true
		f.bytes(name, v)
	}
}

// optRaw is any JSON value, nil when absent.
func (f *fields) optRaw(name string, v *[]byte) {
	if f.in == nil {
		if *v != nil {
			f.key(name)
			f.out = append(f.out, *v...)
		}
		return
	}
	*v = bytes.Clone(f.value(name, false))
}

// array reads a required array, or an optional one, raw; nil when there is none.
func (f *fields) array(name string, required bool) []byte {
	value := f.value(name, required)
	if value != nil && value[0] != '[' {
		f.fail(name, "must be an array")
		return nil
	}
	return value
}

// records is a required array of byte strings, held as `(u32 len, payload)*`. The text of an empty string is 3 bytes with its comma and
// its record 4, so the records of a message are at most 4/3 of its size.
func (f *fields) records(name string, count *uint32, v *[]byte) {
	if f.in == nil {
		f.key(name)
		f.out = append(f.out, '[')
		first := true
		for payload := range AllRecords(*v) {
			if !first {
				f.out = append(f.out, ',')
			}
			first = false
			f.out = appendBase64(f.out, payload)
		}
		f.out = append(f.out, ']')
		return
	}
	value := f.array(name, true)
	if value == nil {
		return
	}
	size := 0
	n := elements(value, func(i int, raw []byte) bool {
		if raw[0] != '"' {
			f.fail(name, "must be an array of strings, element "+itoa(uint64(i))+" is none")
			return false
		}
		size += RecordHeadBytes + base64.StdEncoding.DecodedLen(len(raw)-2)
		return true
	})
	if f.problem != "" || n == 0 {
		return
	}
	records := make([]byte, 0, size)
	elements(value, func(i int, raw []byte) bool {
		at := len(records)
		var ok bool
		records, ok = decodeBase64(records[:at+RecordHeadBytes], unescaped(raw[1:len(raw)-1]))
		if !ok {
			f.fail(name, "element "+itoa(uint64(i))+" "+notBase64)
			return false
		}
		binary.BigEndian.PutUint32(records[at:], uint32(len(records)-at-RecordHeadBytes))
		return true
	})
	if f.problem == "" {
		*count, *v = uint32(n), records[:len(records):len(records)]
	}
}

// list is a required array of objects, each of at least leastBytes of text.
func list[T any](f *fields, name string, v *[]T, leastBytes int, elem func(*T, *fields)) {
	if f.in == nil {
		f.key(name)
		f.out = append(f.out, '[')
		for i := range *v {
			if i > 0 {
				f.out = append(f.out, ',')
			}
			f.object(func(f *fields) { elem(&(*v)[i], f) })
		}
		f.out = append(f.out, ']')
		return
	}
	value := f.array(name, true)
	if value == nil {
		return
	}
	n := elements(value, func(int, []byte) bool { return true })
	if n == 0 {
		return
	}
	// A longer list has an element that is too short to be read, and ends there.
	items := make([]T, 0, min(n, len(value)/leastBytes+1))
	sub := fields{in: new(object)}
	elements(value, func(i int, raw []byte) bool {
		var empty T
		items = append(items, empty)
		if sub.problem = sub.in.index(raw); sub.problem == "" {
			elem(&items[i], &sub)
		}
		if sub.problem != "" {
			f.fail(name, "element "+itoa(uint64(i))+": "+sub.problem)
			return false
		}
		return true
	})
	*v = items
}

// object writes a nested object.
func (f *fields) object(members func(f *fields)) {
	f.out = append(f.out, '{')
	f.empty = true
	members(f)
	f.empty = false
	f.out = append(f.out, '}')
}

// nested reads a nested object.
func (f *fields) nested(name string, value []byte, members func(f *fields)) {
	sub := fields{in: new(object)}
	if sub.problem = sub.in.index(value); sub.problem == "" {
		members(&sub)
	}
	if sub.problem != "" {
		f.fail(name, "is wrong: "+sub.problem)
	}
}

// ports is an optional array of port numbers; an empty one stands for absent.
func (f *fields) ports(name string, v *[]uint16) {
	if f.in == nil {
		if len(*v) == 0 {
			return
		}
		f.key(name)
		f.out = append(f.out, '[')
		for i, port := range *v {
			if i > 0 {
				f.out = append(f.out, ',')
			}
			f.out = strconv.AppendUint(f.out, uint64(port), 10)
		}
		f.out = append(f.out, ']')
		return
	}
	value := f.array(name, false)
	if value == nil {
		return
	}
	n := elements(value, func(int, []byte) bool { return true })
	if n == 0 {
		return
	}
	ports := make([]uint16, 0, n)
	elements(value, func(_ int, raw []byte) bool {
		ports = append(ports, uint16(f.integer(name, raw, 1<<16-1)))
		return f.problem == ""
	})
	*v = ports
}

func itoa(v uint64) string { return strconv.FormatUint(v, 10) }
