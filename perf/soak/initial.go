package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// An initialForger makes first packets of QUIC handshakes (RFC 9000 and 9001, version 1) that differ in nothing but their connection ID,
// far faster than clients could begin handshakes. Nobody goes on with them.
type initialForger struct {
	rng   *rand.Rand
	hello []byte // the ClientHello of all of them
	scid  []byte // the connection ID that it names
}

// initialBytes is the size of the datagrams: the least that a broker answers.
const initialBytes = 1200

// initialSalt is that of version 1 (RFC 9001, section 5.2).
var initialSalt = []byte{0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a}

func newInitialForger(ctx context.Context, seed uint64) (*initialForger, error) {
	f := &initialForger{rng: rand.New(rand.NewPCG(seed, 0)), scid: []byte("floods!!")}
	q := tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{
		ServerName: "localhost", NextProtos: []string{"felix/1"}, MinVersion: tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519}, // the post-quantum key share would take two packets
	}})
	defer q.Close()
	q.SetTransportParameters(append([]byte{0x0f, byte(len(f.scid))}, f.scid...)) // initial_source_connection_id, which must be there
	if err := q.Start(ctx); err != nil {
		return nil, err
	}
	for {
		switch e := q.NextEvent(); e.Kind {
		case tls.QUICWriteData:
			f.hello = append(f.hello, e.Data...)
		case tls.QUICNoEvent:
			if len(f.hello) == 0 || len(f.hello) > initialBytes-200 {
				return nil, fmt.Errorf("a ClientHello of %d bytes does not fit one packet", len(f.hello))
			}
			return f, nil
		}
	}
}

// packet returns the first packet of another handshake.
func (f *initialForger) packet() ([]byte, error) {
	dcid := binary.BigEndian.AppendUint64(nil, f.rng.Uint64())
	secret, err := hkdf.Extract(sha256.New, dcid, initialSalt)
	if err != nil {
		return nil, err
	}
	var errs []error
	expand := func(secret []byte, label string, n int) []byte {
		label = "tls13 " + label
		info := binary.BigEndian.AppendUint16(nil, uint16(n))
		info = append(append(append(info, byte(len(label))), label...), 0)
		key, err := hkdf.Expand(sha256.New, secret, string(info), n)
		errs = append(errs, err)
		return key
	}
	secret = expand(secret, "client in", sha256.Size)
	key, iv, hp := expand(secret, "quic key", 16), expand(secret, "quic iv", 12), expand(secret, "quic hp", 16)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	const pnBytes, tagBytes = 4, 16
	b := append(make([]byte, 0, initialBytes), 0xc0|pnBytes-1, 0, 0, 0, 1)
	b = append(append(b, byte(len(dcid))), dcid...)
	b = append(append(b, byte(len(f.scid))), f.scid...)
	b = append(b, 0) // no token
	rest := initialBytes - len(b) - 2
	b = binary.BigEndian.AppendUint16(b, 0x4000|uint16(rest))
	pn := len(b)
	b = append(b, 0, 0, 0, 0) // packet number 0, so the nonce is the iv
	payload := binary.BigEndian.AppendUint16([]byte{0x06, 0}, 0x4000|uint16(len(f.hello)))
	payload = append(payload, f.hello...)
	payload = append(payload, make([]byte, initialBytes-len(b)-tagBytes-len(payload))...)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	b = aead.Seal(b, iv, payload, b)
	if block, err = aes.NewCipher(hp); err != nil {
		return nil, err
	}
	var mask [16]byte
	block.Encrypt(mask[:], b[pn+4:pn+20])
	b[0] ^= mask[0] & 0x0f
	for i := range pnBytes {
		b[pn+i] ^= mask[1+i]
	}
	return b, nil
}
