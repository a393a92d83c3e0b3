package felix

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Lifetime of a development certificate. It is looked at when the broker starts, so the life is long and the
// margin is what a broker may at least run on a certificate it found.
const (
	devCertLife   = 10 * 365 * 24 * time.Hour
	devCertMargin = 30 * 24 * time.Hour
)

// certificate is what the broker presents, and where clients find what they have to trust.
type certificate struct {
	pair   tls.Certificate
	pem    []byte // the chain in PEM, without the key
	file   string // absolute path of a file with pem
	origin string // for people: "development, valid until ..." or the configured file
}

// devCertNames are the names a development certificate is made for.
type devCertNames struct {
	dns []string
	ips []netip.Addr
}

// namesFor returns localhost, the two loopback addresses, the host name and the advertised host; sorted, each once.
func namesFor(hostName, advertiseHost string) devCertNames {
	names := devCertNames{
		dns: []string{"localhost"},
		ips: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()},
	}
	for _, name := range []string{hostName, advertiseHost} {
		if ip, err := netip.ParseAddr(name); err == nil {
			names.ips = append(names.ips, ip.Unmap().WithZone(""))
		} else if validDNSName(name) {
			names.dns = append(names.dns, strings.ToLower(name))
		}
	}
	slices.Sort(names.dns)
	names.dns = slices.Compact(names.dns)
	slices.SortFunc(names.ips, netip.Addr.Compare)
	names.ips = slices.Compact(names.ips)
	return names
}

// validDNSName reports whether name can stand in a certificate. Some host names cannot (underscores are refused
// by verifiers); such a name is left out, since it could not be checked anyway.
func validDNSName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}

// developmentCertificate returns the certificate kept in dir, made anew when there is none, when it is for other
// names, or when less than devCertMargin of its life is left.
//
// It is a leaf that signs itself and not a CA: the published clients refuse a CA as a server (WIRE 1.1), and
// trust a leaf that they were given as a root.
func developmentCertificate(dir string, names devCertNames, now time.Time) (*certificate, error) {
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, certUnusable(dir, err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if errors.Is(err, fs.ErrPermission) {
		return nil, certUnusable(dir, err)
	}
	if err != nil || !stillGood(pair.Leaf, names, now) {
		if err := makeCertificate(certFile, keyFile, names, now); err != nil {
			return nil, certUnusable(dir, err)
		}
		if pair, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			return nil, certUnusable(dir, err)
		}
	}
	return &certificate{
		pair:   pair,
		pem:    chainPEM(pair),
		file:   certFile,
		origin: "development, valid until " + pair.Leaf.NotAfter.Format(time.DateOnly),
	}, nil
}

func certUnusable(dir string, err error) error {
	return fmt.Errorf("the development certificate cannot be kept in %s: %w; make that directory writable for this user, or set tls_cert and tls_key", dir, plain(err))
}

// stillGood reports whether a certificate found on disk serves for names at least devCertMargin longer.
func stillGood(leaf *x509.Certificate, names devCertNames, now time.Time) bool {
	if leaf == nil || leaf.IsCA || now.Before(leaf.NotBefore) || now.After(leaf.NotAfter.Add(-devCertMargin)) {
		return false
	}
	var ips []netip.Addr
	for _, ip := range leaf.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			ips = append(ips, addr.Unmap())
		}
	}
	return slices.Equal(leaf.DNSNames, names.dns) && slices.Equal(ips, names.ips)
}

// makeCertificate writes a new pair. The key goes first: a crash in between leaves a pair that does not match,
// which is made anew at the next start.
func makeCertificate(certFile, keyFile string, names devCertNames, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template := x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "felix development"},
		NotBefore:             now.Add(-time.Hour), // clients whose clock is a little behind
		NotAfter:              now.Add(devCertLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              names.dns,
	}
	for _, ip := range names.ips {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeFileSync(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
		return err
	}
	return writeFileSync(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// configuredCertificate loads tls_cert and tls_key.
func configuredCertificate(certFile, keyFile string) (*certificate, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("tls_cert is %q, which cannot be read: %w; give a PEM file that this user can read", certFile, plain(err))
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("tls_key is %q, which cannot be read: %w; give a PEM file that this user can read", keyFile, plain(err))
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("tls_cert %q and tls_key %q are no pair (%s); give the key this certificate was made with", certFile, keyFile, strings.TrimPrefix(err.Error(), "tls: "))
	}
	absolute, err := filepath.Abs(certFile)
	if err != nil {
		return nil, fmt.Errorf("tls_cert is %q: %w; give an absolute path", certFile, plain(err))
	}
	return &certificate{
		pair:   pair,
		pem:    chainPEM(pair),
		file:   absolute,
		origin: absolute + ", valid until " + pair.Leaf.NotAfter.Format(time.DateOnly),
	}, nil
}

// chainPEM encodes the certificates of a pair, without its key.
func chainPEM(pair tls.Certificate) []byte {
	var chain bytes.Buffer
	for _, der := range pair.Certificate {
		pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // a Buffer takes every write
	}
	return chain.Bytes()
}

// exportCertificate writes the PEM that clients need to the path of tls_cert_export.
func exportCertificate(file string, content []byte) error {
	if sameContent(file, content) {
		return nil
	}
	if err := writeFileSync(file, content, 0o644); err != nil {
		return fmt.Errorf("tls_cert_export is %q, which cannot be written: %w; give a path in a directory that this user can write", file, plain(err))
	}
	return nil
}
