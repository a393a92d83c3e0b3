package wire

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxObjectFields bounds the fields of one object that is read by name. A further one is an error.
	maxObjectFields = 64
	// maxNesting bounds arrays and objects within each other. A deeper one is an error, so that the scanner's recursion is bounded.
	maxNesting = 32
)

// An object is the index of one JSON object: names and values as they stand in the text. It holds views of the text. Values are checked
// to be JSON, not more.
type object struct {
	members [maxObjectFields]member
	n       int
}

type member struct {
	name  []byte // unescaped, without quotes
	value []byte // raw
}

// index reads the object that text consists of, replacing what o held. It returns what is wrong as a sentence, "" when nothing is.
func (o *object) index(text []byte) string {
	o.n = 0
	s := scanner{text: text}
	s.space()
	if s.peek() != '{' {
		return "it is not a JSON object"
	}
	s.at++
	s.space()
	if s.peek() == '}' {
		s.at++
	} else {
		o.indexMembers(&s)
	}
	s.space()
	if s.problem == "" && s.at < len(text) {
		s.fail("the object is over, want nothing more")
	}
	return s.problem
}

func (o *object) indexMembers(s *scanner) {
	for s.problem == "" {
		s.space()
		name := s.string()
		s.space()
		s.expect(':')
		s.space()
		from := s.at
		s.value(1)
		if s.problem != "" {
			return
		}
		if o.n == maxObjectFields {
			s.fail(fmt.Sprintf("an object may have %d fields, this one has more", maxObjectFields))
			return
		}
		o.members[o.n] = member{name: unescaped(name), value: s.text[from:s.at]}
		o.n++
		s.space()
		if s.peek() == '}' {
			s.at++
			return
		}
		s.expect(',')
	}
}

// find returns the raw value of a field, nil when it is absent or null. ok is false when the field stands there twice.
func (o *object) find(name string) (value []byte, ok bool) {
	found := false
	for i := range o.members[:o.n] {
		if m := &o.members[i]; string(m.name) == name {
			if found {
				return nil, false
			}
			found, value = true, m.value
		}
	}
	if string(value) == "null" {
		return nil, true
	}
	return value, true
}

// A scanner walks JSON text. After the first problem, which is kept, it stands still.
type scanner struct {
	text    []byte
	at      int
	problem string
}

func (s *scanner) fail(problem string) {
	if s.problem == "" {
		s.problem = fmt.Sprintf("at byte %d: %s", s.at, problem)
	}
}

// peek returns the next byte, 0 at the end (a NUL is no part of JSON, so the two need no telling apart).
func (s *scanner) peek() byte {
	if s.at >= len(s.text) {
		return 0
	}
	return s.text[s.at]
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) expect(c byte) {
	if s.peek() != c {
		s.fail("want " + string(rune(c)))
		return
	}
	s.at++
}

// value walks over one value. depth is the number of arrays and objects around it.
func (s *scanner) value(depth int) {
	if s.problem != "" {
		return
	}
	switch c := s.peek(); {
	case c == '"':
		s.string()
	case c == '{' || c == '[':
		if depth >= maxNesting {
			s.fail(fmt.Sprintf("arrays and objects may stand %d deep, these go deeper", maxNesting))
			return
		}
		s.at++
		s.composite(c == '{', depth+1)
	case c == '-' || c >= '0' && c <= '9':
		s.number()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	default:
		s.fail("want a value")
	}
}

// composite walks over the rest of an object or array whose opening bracket is behind.
func (s *scanner) composite(isObject bool, depth int) {
	end := byte(']')
	if isObject {
		end = '}'
	}
	s.space()
	if s.peek() == end {
		s.at++
		return
	}
	for s.problem == "" {
		s.space()
		if isObject {
			s.string()
			s.space()
			s.expect(':')
			s.space()
		}
		s.value(depth)
		s.space()
		if s.problem == "" && s.peek() == end {
			s.at++
			return
		}
		s.expect(',')
	}
}

func (s *scanner) literal(want string) {
	end := s.at + len(want)
	if end > len(s.text) || string(s.text[s.at:end]) != want {
		s.fail("want a value")
		return
	}
	s.at = end
}

func (s *scanner) number() {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if !s.digits() {
		return
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		s.digits()
	}
}

func (s *scanner) digits() bool {
	from := s.at
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
	}
	if s.at == from {
		s.fail("want a digit")
	}
	return s.at > from
}

// string walks over a string and returns it raw, without quotes. It has no escapes that unescaped cannot resolve.
func (s *scanner) string() []byte {
	if s.problem != "" {
		return nil
	}
	if s.peek() != '"' {
		s.fail(`want "`)
		return nil
	}
	s.at++
	from := s.at
	for {
		// Payloads are long strings without escapes: keep this loop tight.
		at := s.at
		for at < len(s.text) && s.text[at] >= ' ' && s.text[at] != '"' && s.text[at] != '\\' {
			at++
		}
		s.at = at
		if at == len(s.text) {
			break
		}
		switch s.text[at] {
		case '"':
			s.at++
			return s.text[from:at]
		case '\\':
			_, size := unescapeOne(s.text[at:])
			if size == 0 {
				s.fail("bad escape in a string")
				return nil
			}
			s.at += size
		default:
			s.fail("a control character in a string")
			return nil
		}
	}
	s.fail("the string does not end")
	return nil
}

// unescapeOne reads the escape that b starts with. size is 0 when it is none; a surrogate counts only as half of a pair.
func unescapeOne(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return 0, 0
	}
	r, ok := hex4(b[2:])
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
		return 0, 0
	}
	low, ok := hex4(b[8:])
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescaped resolves the escapes of a string that the scanner has walked over. Without any it returns raw itself.
func unescaped(raw []byte) []byte {
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return raw
	}
	return appendUnescaped(append(make([]byte, 0, len(raw)), raw[:i]...), raw[i:])
}

func appendUnescaped(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		r, size := unescapeOne(raw[i:])
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return dst
}

// elements calls visit for every element of the array that text consists of, raw, until visit says no. text has been walked over already.
// It returns the number of elements visited.
func elements(text []byte, visit func(i int, raw []byte) bool) int {
	s := scanner{text: text, at: 1}
	s.space()
	if s.peek() == ']' {
		return 0
	}
	for i := 0; ; i++ {
		s.space()
		from := s.at
		s.value(0)
		if !visit(i, text[from:s.at]) {
			return i + 1
		}
		s.space()
		if s.peek() != ',' {
			return i + 1
		}
		s.at++
	}
}
