package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestHeaderRoundTrip(t *testing.T) {
	for _, h := range []Header{{}, {Flags: FlagPublishBatch | FlagPublishAcked, Length: 41}, {Flags: 0xFFFF, Length: 1<<32 - 1}} {
		b := AppendHeader([]byte("x"), h)[1:]
		got, err := ParseHeader(append(b, "more"...))
		if err != nil || got != h {
			t.Errorf("ParseHeader(%x) = %+v, %v, want %+v", b, got, err, h)
		}
		put := bytes.Repeat([]byte{0xAA}, HeaderBytes+1)
		PutHeader(put, h)
		if !bytes.Equal(put[:HeaderBytes], b) || put[HeaderBytes] != 0xAA {
			t.Errorf("PutHeader gives %x, AppendHeader %x", put, b)
		}
	}
}

func TestParseHeaderErrors(t *testing.T) {
	whole := AppendHeader(nil, Header{Flags: FlagPublishAck, Length: 11})
	changed := func(at int, b byte) []byte {
		c := bytes.Clone(whole)
		c[at] = b
		return c
	}
	tests := []struct {
		name string
		b    []byte
		want error
	}{
		{"empty", nil, ErrShortHeader},
		{"one byte short", whole[:HeaderBytes-1], ErrShortHeader},
		{"magic", changed(3, '2'), ErrBadMagic},
		{"magic of broker-to-broker traffic", changed(3, 'I'), ErrBadMagic},
		{"magic, only four bytes there", changed(0, 'G')[:4], ErrBadMagic},
		{"version 2", changed(5, 2), ErrBadVersion},
		{"version 257, only six bytes there", changed(4, 1)[:6], ErrBadVersion},
		{"three bytes of a wrong magic", changed(0, 'G')[:3], ErrShortHeader},
	}
	for _, tt := range tests {
		if _, err := ParseHeader(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestSplitFrame(t *testing.T) {
	first := AppendAckOK(nil, 1, 7, true)
	two := AppendMessage(bytes.Clone(first), &OK{})
	for cut := range len(first) {
		h, body, rest, ok, err := SplitFrame(two[:cut], MaxFrameBytes)
		if ok || err != nil || body != nil || len(rest) != cut {
			t.Fatalf("with %d bytes of %d: ok %v, body %x, %d left, %v", cut, len(first), ok, body, len(rest), err)
		}
		if (h.Length != 0) != (cut >= HeaderBytes) {
			t.Errorf("with %d bytes the header is %+v", cut, h)
		}
	}
	_, body, rest, ok, err := SplitFrame(two, MaxFrameBytes)
	if !ok || err != nil || !bytes.Equal(body, first[HeaderBytes:]) || !bytes.Equal(rest, two[len(first):]) {
		t.Errorf("ok %v, body %x, rest %x, %v", ok, body, rest, err)
	}
	if cap(body) != len(body) {
		t.Errorf("body has %d bytes to spare: an append to it would overwrite the next frame", cap(body)-len(body))
	}
	exact := uint32(len(first) - HeaderBytes)
	if _, _, _, ok, err = SplitFrame(first, exact); !ok || err != nil {
		t.Errorf("a payload of exactly the limit: ok %v, %v", ok, err)
	}
	h, _, _, ok, err := SplitFrame(first[:HeaderBytes], exact-1)
	if ok || !errors.Is(err, ErrFrameTooLarge) || h.Length != exact {
		t.Errorf("a payload beyond the limit, header only: %+v, ok %v, %v", h, ok, err)
	}
	if _, _, _, _, err = SplitFrame([]byte("GET / HTTP/1.1\r\n"), 10); !errors.Is(err, ErrBadMagic) {
		t.Errorf("not our protocol: %v", err)
	}
}
