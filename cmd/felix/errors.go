package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"felix/client"
	"felix/netio/wire"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitDenied      = 4
	exitUnavailable = 5
	exitConflict    = 6
)

// problem is an error for a person: three lines and an exit code.
type problem struct {
	code int
	what string // what happened
	why  string // why, with values
	next string // what to run next
}

func (p *problem) Error() string { return p.what + ": " + p.why }

func (p *problem) print(w io.Writer) {
	fmt.Fprintf(w, "felix: %s\n  why:  %s\n  next: %s\n", oneLine(p.what), oneLine(p.why), oneLine(p.next))
}

// oneLine keeps a text from the other side to its line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// flagError is usage for what the flag package found. Of a value that is none it keeps the value and not how that was found out.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if argument, rest, ok := strings.Cut(text, " for "); ok && strings.HasPrefix(argument, "invalid argument ") {
		name, _, _ := strings.Cut(rest, " flag:")
		text = fmt.Sprintf("%s is no value for %s", strings.TrimPrefix(argument, "invalid argument "), strings.Trim(name, `"`))
	}
	return usage(cmd, text)
}

// usage is a command line that cannot be understood.
func usage(cmd *cobra.Command, why string) *problem {
	return &problem{exitUsage, "the command line is not understood", why, cmd.CommandPath() + " --help"}
}

// explain makes three lines of any error.
func explain(ctx context.Context, err error, cmd *cobra.Command) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	if ctx.Err() != nil {
		return &problem{exitFailure, "interrupted", "a signal ended the command before it was done", cmd.CommandPath() + " again, to start over"}
	}
	if p := explainClient(err); p != nil {
		return p
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &problem{exitFailure, "a file cannot be used", fmt.Sprintf("%s: %v", pathErr.Path, pathErr.Err), "ls -l " + pathErr.Path}
	}
	return &problem{exitFailure, cmd.CommandPath() + " failed", deepest(err).Error(), cmd.CommandPath() + " --help"}
}

// explainClient makes three lines of what package client returns; nil for other errors.
func explainClient(err error) *problem {
	var cursor *client.CursorError
	if errors.As(err, &cursor) {
		p := &problem{exitFailure, fmt.Sprintf("%s cannot be read from offset %d", quoteStream(cursor.Stream), cursor.Requested), "", ""}
		if cursor.InFuture {
			p.why = fmt.Sprintf("the next record of shard %d gets offset %d", cursor.Shard, cursor.Available)
			p.next = fmt.Sprintf("felix sub %s --from latest", cursor.Stream)
		} else {
			p.why = fmt.Sprintf("the oldest record that shard %d keeps has offset %d", cursor.Shard, cursor.Available)
			p.next = fmt.Sprintf("felix sub %s --from earliest", cursor.Stream)
		}
		return p
	}
	if errors.Is(err, client.ErrStreamDeleted) {
		return &problem{exitNotFound, "the subscription ended", "the stream was deleted", "felix stream ls"}
	}
	var refused *client.Error
	if !errors.As(err, &refused) {
		return nil
	}
	p := &problem{exitFailure, failedTo(refused), reason(refused), ""}
	switch {
	case errors.Is(err, client.ErrNotFound):
		p.code = exitNotFound
		p.next = "felix stream ls, or felix stream create " + orName(refused.Stream)
	case errors.Is(err, client.ErrUnauthenticated), errors.Is(err, client.ErrForbidden):
		p.code = exitDenied
		p.next = "the same command with --token TOKEN --tenant TENANT"
	case isUntrusted(err):
		p.code = exitUnavailable
		p.next = "the same command with --ca FILE, the certificate that the broker exports (tls_cert_export)"
	case refused.Code == wire.CodeLimitExceeded:
		p.next = "felix stream ls, and felix stream rm NAME for one that is not needed"
	case errors.Is(err, client.ErrOverloaded):
		p.code = exitUnavailable
		p.next = "the same command in a moment"
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrUnsupported):
		p.code = exitUsage
		p.next = "felix stream info " + orName(refused.Stream)
	case errors.Is(err, client.ErrOutcomeUnknown):
		p.code = exitUnavailable
		p.next = "felix sub " + orName(refused.Stream) + " --from earliest, to see whether it arrived"
	case errors.Is(err, client.ErrStorage):
		p.next = "felix wal verify DATA on the machine of the broker, once that has ended; its log and /ready say more"
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		p.code = exitUnavailable
		p.next = "felixd, if the broker does not run; otherwise check --server"
	default:
		p.next = "the same command again; the broker's log says more"
	}
	return p
}

// failedTo says which operation failed.
func failedTo(e *client.Error) string {
	switch e.Op {
	case "publish":
		return "nothing was published to " + quoteStream(e.Stream)
	case "subscribe":
		return "the subscription to " + quoteStream(e.Stream) + " failed"
	case "dial", "connect":
		return "the broker cannot be reached"
	}
	if e.Stream != "" {
		return fmt.Sprintf("%s of %s failed", e.Op, quoteStream(e.Stream))
	}
	return e.Op + " failed"
}

// reason says why in words of the broker, or of the network when it never answered.
func reason(e *client.Error) string {
	if isUntrusted(e) {
		return deepest(e).Error()
	}
	text := e.Message
	if e.Err != nil {
		if text != "" {
			text += ": "
		}
		text += deepest(e.Err).Error()
	}
	if e.Code != 0 {
		text = strings.TrimSuffix(fmt.Sprintf("%s (%s)", text, e.Code), " ()")
	}
	if text == "" {
		return "it gave no reason"
	}
	return text
}

// deepest is the cause at the end of a chain, which has the values; what wraps it says where in our code.
func deepest(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func isUntrusted(err error) bool {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

func quoteStream(name string) string {
	if name == "" {
		return "the stream"
	}
	return fmt.Sprintf("stream %q", name)
}

func orName(name string) string {
	if name == "" {
		return "NAME"
	}
	return name
}
