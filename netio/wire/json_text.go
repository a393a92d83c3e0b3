package wire

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"
)

const notBase64 = "is not base64 with padding"

// base64Strict refuses trailing bits that are not zero, so that a byte string has one text.
var base64Strict = base64.StdEncoding.Strict()

// decodeBase64 appends the bytes that text stands for to dst, which has room for them.
func decodeBase64(dst, text []byte) ([]byte, bool) {
	// The decoder skips line breaks, which other readers of this protocol refuse.
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 {
		return dst, false
	}
	out, err := base64Strict.AppendDecode(dst, text)
	return out, err == nil
}

func appendBase64(dst, v []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, v)
	return append(dst, '"')
}

// appendJSONString writes what published encoders write: escapes for quote, backslash and control characters only.
func appendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		i++
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			if c < ' ' {
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			} else {
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '"')
}
