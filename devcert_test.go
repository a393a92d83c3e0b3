package felix

import (
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var certTime = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func mustCertificate(t *testing.T, dir string, names devCertNames, now time.Time) *certificate {
	t.Helper()
	c, err := developmentCertificate(dir, names, now)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDevelopmentCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	names := namesFor("Box.example", "10.1.2.3")
	c := mustCertificate(t, dir, names, certTime)
	leaf := c.pair.Leaf
	if leaf.IsCA || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || leaf.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("CA %v, usage %v, key %v", leaf.IsCA, leaf.ExtKeyUsage, leaf.PublicKeyAlgorithm)
	}
	// What a client does with the exported file.
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.pem) {
		t.Fatal("the PEM holds no certificate")
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "box.example", "10.1.2.3"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: certTime, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "elsewhere", CurrentTime: certTime}); err == nil {
		t.Error("verified for a name it is not for")
	}
	info, err := os.Stat(filepath.Join(dir, "key.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key: mode %v, %v", info.Mode(), err)
	}
	if content, err := os.ReadFile(c.file); err != nil || string(content) != string(c.pem) {
		t.Errorf("%s does not hold the PEM: %v", c.file, err)
	}
}

func TestDevelopmentCertificateLifecycle(t *testing.T) {
	names := namesFor("box", "")
	expiry := certTime.Add(devCertLife)
	damage := func(file string) func(dir string) {
		return func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, file), []byte("nonsense"), 0o600); err != nil {
				panic(err)
			}
		}
	}
	tests := []struct {
		name  string
		names devCertNames
		now   time.Time
		do    func(dir string)
		kept  bool
	}{
		{"at once", names, certTime, nil, true},
		{"years later", names, expiry.Add(-devCertMargin - time.Second), nil, true},
		{"in its last month", names, expiry.Add(-devCertMargin + time.Second), nil, false},
		{"expired", names, expiry.Add(time.Hour), nil, false},
		{"before it was made", names, certTime.Add(-2 * time.Hour), nil, false},
		{"another host name", namesFor("barrel", ""), certTime, nil, false},
		{"an advertised host", namesFor("box", "broker.example"), certTime, nil, false},
		{"an advertised address", namesFor("box", "10.0.0.9"), certTime, nil, false},
		{"the host name advertised", namesFor("box", "box"), certTime, nil, true},
		{"a lost key", names, certTime, func(dir string) { os.Remove(filepath.Join(dir, "key.pem")) }, false},
		{"a damaged key", names, certTime, damage("key.pem"), false},
		{"a damaged certificate", names, certTime, damage("cert.pem"), false},
	}
	for _, test := range tests {
		dir := t.TempDir()
		first := mustCertificate(t, dir, names, certTime)
		if test.do != nil {
			test.do(dir)
		}
		second := mustCertificate(t, dir, test.names, test.now)
		if kept := first.pair.Leaf.Equal(second.pair.Leaf); kept != test.kept {
			t.Errorf("%s: kept %v, want %v", test.name, kept, test.kept)
		}
		if !stillGood(second.pair.Leaf, test.names, test.now) {
			t.Errorf("%s: the certificate in force is not good", test.name)
		}
	}
}

func TestNamesFor(t *testing.T) {
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}
	tests := []struct {
		host, advertise string
		dns             []string
		ips             []string
	}{
		{"", "", []string{"localhost"}, nil},
		{"localhost", "localhost", []string{"localhost"}, nil},
		{"Box", "", []string{"box", "localhost"}, nil},
		{"under_score", "a..b", []string{"localhost"}, nil},
		{"box", "127.0.0.1", []string{"box", "localhost"}, nil},
		{"box", "::ffff:10.0.0.1", []string{"box", "localhost"}, []string{"10.0.0.1"}},
	}
	for _, test := range tests {
		want := slices.Clone(loopback)
		for _, ip := range test.ips {
			want = append(want, netip.MustParseAddr(ip))
		}
		slices.SortFunc(want, netip.Addr.Compare)
		if got := namesFor(test.host, test.advertise); !slices.Equal(got.dns, test.dns) || !slices.Equal(got.ips, want) {
			t.Errorf("%q %q: %+v, want %v %v", test.host, test.advertise, got, test.dns, want)
		}
	}
}

func TestConfiguredCertificate(t *testing.T) {
	names := namesFor("box", "")
	one, two := t.TempDir(), t.TempDir()
	mustCertificate(t, one, names, certTime)
	mustCertificate(t, two, names, certTime)
	cert, key := filepath.Join(one, "cert.pem"), filepath.Join(one, "key.pem")
	if c, err := configuredCertificate(cert, key); err != nil || c.file != cert {
		t.Errorf("a pair: %+v, %v", c, err)
	}
	tests := []struct{ cert, key, want string }{
		{cert, filepath.Join(two, "key.pem"), "are no pair (private key does not match public key); give the key"},
		{key, cert, "are no pair ("},
		{filepath.Join(one, "none"), key, "which cannot be read: no such file or directory"},
		{cert, filepath.Join(one, "none"), "tls_key is"},
	}
	for _, test := range tests {
		_, err := configuredCertificate(test.cert, test.key)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s, %s: %v, want %q in it", test.cert, test.key, err, test.want)
		}
	}
}

func TestExportCertificate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	for range 2 {
		if err := exportCertificate(file, []byte("PEM")); err != nil {
			t.Fatal(err)
		}
	}
	if content, _ := os.ReadFile(file); string(content) != "PEM" {
		t.Errorf("exported %q", content)
	}
	err := exportCertificate(filepath.Join(file, "below"), []byte("PEM"))
	if err == nil || !strings.Contains(err.Error(), "tls_cert_export is") || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("below a file: %v", err)
	}
}
