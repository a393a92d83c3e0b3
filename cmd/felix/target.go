package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"felix"
	"felix/client"
)

// dialTimeout bounds how long a command tries to reach its broker.
const dialTimeout = 10 * time.Second

// development returns the note of the development broker of this user, when it is the one that the command talks to: --server names
// none, or names that one.
func (a *app) development() (felix.Ready, bool) {
	note, err := felix.FindContext()
	if err != nil || a.server != "" && !sameAddress(a.server, note.Listen) {
		return felix.Ready{}, false
	}
	return note, true
}

// sameAddress compares host:port texts, with localhost for 127.0.0.1.
func sameAddress(a, b string) bool {
	normal := func(text string) string {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			return text
		}
		if host == "localhost" {
			host = "127.0.0.1"
		}
		return net.JoinHostPort(host, port)
	}
	return normal(a) == normal(b)
}

// dial connects to the broker.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	server, ca := a.server, a.ca
	if note, ok := a.development(); ok {
		server = note.Listen
		if ca == "" {
			ca = note.CAFile
		}
	}
	if server == "" {
		return nil, &problem{
			exitUnavailable, "there is no broker to talk to",
			"--server is not given, FELIX_SERVER is not set, and no development broker of this user is running",
			"felixd, in another terminal; or the same command with --server HOST:PORT --ca FILE",
		}
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		return nil, &problem{exitUsage, "there is no broker to talk to", fmt.Sprintf("server is %q; give HOST:PORT", server), "the same command with --server HOST:PORT"}
	}
	options := []client.Option{client.WithTenant(a.tenant), client.WithNamespace(a.namespace), client.WithToken(a.token)}
	if ca != "" {
		if err := readable(ca); err != nil {
			return nil, &problem{exitFailure, "the broker cannot be trusted", fmt.Sprintf("ca is %q: %v", ca, err), "the same command with --ca FILE, the certificate that the broker exports (tls_cert_export)"}
		}
		options = append(options, client.WithCAFile(ca))
	}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := client.Dial(dialCtx, server, options...)
	if err != nil && ctx.Err() == nil {
		if p := explainClient(err); p != nil && p.code == exitUnavailable && !isUntrusted(err) {
			p.why = server + " does not answer: " + strings.TrimPrefix(p.why, server+": ")
			p.next = "felixd, if no broker runs there; otherwise the same command with another --server"
			return nil, p
		}
	}
	return c, err
}

// readable reports what keeps a file from being a list of certificates.
func readable(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return deepest(err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return errors.New("it holds no certificate in PEM")
	}
	return nil
}
