package udp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"syscall"

	"github.com/quic-go/quic-go"
)

const (
	// ConnectionIDBytes is the length of the connection IDs that ConnectionIDs makes. Clients must
	// choose at least 8 bytes for the ID of a first packet (RFC 9000, 7.2), so the length alone tells
	// ours from theirs.
	ConnectionIDBytes = 7

	// MaxDatagramBytes is the longest datagram that is delivered. Longer ones are dropped and counted
	// in Stats.Truncated. The published clients start with 4,096 bytes on loopback and with up to
	// 16,336 elsewhere; every other packet obeys the receiver's max_udp_payload_size.
	MaxDatagramBytes = 16 << 10

	// MaxShared is the largest number of sockets on one shared port.
	MaxShared = 64

	// defaultBufferBytes is asked of the kernel for either direction. quic-go asks for as much.
	defaultBufferBytes = 7 << 20
)

// Options are copied by Listen and fixed afterwards.
type Options struct {
	// ReadBufferBytes is asked of the kernel for packets that were received and not yet read; what does
	// not fit is lost. Zero means 7 MiB, and quic-go raises less to that. The privileged request
	// (SO_RCVBUFFORCE) is tried first; a smaller grant is logged and shows in Stats.
	ReadBufferBytes int

	// WriteBufferBytes is asked of the kernel for packets on their way out; beyond it a send waits.
	// Zero means 7 MiB, and quic-go raises less to that.
	WriteBufferBytes int

	// DisableGRO reads every datagram by itself, as on kernels before 5.0. It is for comparisons.
	DisableGRO bool

	// Logger gets one warning each for a buffer that came out small and for missing receive offload, and
	// one for a shared port without steering: ListenShared says each once for all its sockets. Nil means silence.
	Logger *slog.Logger
}

func (o Options) validate() error {
	var errs []error
	if o.ReadBufferBytes < 0 {
		errs = append(errs, fmt.Errorf("udp: ReadBufferBytes is %d: give a size, or 0 for %d", o.ReadBufferBytes, defaultBufferBytes))
	}
	if o.WriteBufferBytes < 0 {
		errs = append(errs, fmt.Errorf("udp: WriteBufferBytes is %d: give a size, or 0 for %d", o.WriteBufferBytes, defaultBufferBytes))
	}
	return errors.Join(errs...)
}

// withDefaults fills in the sizes.
func (o Options) withDefaults() Options {
	if o.ReadBufferBytes == 0 {
		o.ReadBufferBytes = defaultBufferBytes
	}
	if o.WriteBufferBytes == 0 {
		o.WriteBufferBytes = defaultBufferBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Stats is what one socket has done since Listen. Counts only grow; the copy is not one instant, since the
// socket goes on. On systems other than Linux only the buffer sizes asked for are known and all else is zero.
//
// Every datagram a socket took from the kernel is in exactly one of: PacketsReceived without TakenOver,
// HandedOver, HandoverDropped, Truncated, or it was empty.
type Stats struct {
	PacketsReceived uint64 // datagrams given to the reader, those taken over included
	BytesReceived   uint64 // their payload
	ReadCalls       uint64 // system calls that brought at least one message
	SuperBuffers    uint64 // messages that held several datagrams (receive offload)
	HandedOver      uint64 // datagrams passed to the member of the shared port that owns them
	HandoverDropped uint64 // datagrams lost because that member's queue was full
	TakenOver       uint64 // datagrams given to the reader that another member had received
	Truncated       uint64 // datagrams longer than MaxDatagramBytes, or cut by the kernel: dropped
	ReadErrors      uint64 // errors of earlier sends and of short memory that reading absorbed
	KernelDrops     uint64 // datagrams the kernel dropped, for want of receive buffer above all

	PacketsSent uint64 // datagrams handed to the kernel, segments of one send counted singly
	BytesSent   uint64 // their payload
	SendCalls   uint64 // system calls that sent
	SendWaits   uint64 // sends that waited for room in the socket buffer (EAGAIN)
	NoBuffers   uint64 // pauses because the device queue or memory was full (ENOBUFS)
	SendDropped uint64 // sends given up after the last such pause; to QUIC they are lost packets
	GSOErrors   uint64 // segmented sends the device refused (EIO); quic-go then sends singly

	GRO              bool // the kernel may hand over several datagrams in one read
	GSO              bool // the kernel knows segmented sends; quic-go uses them unless told otherwise
	ReadBufferBytes  int  // granted, as the kernel counts: twice what was asked if nothing stood in the way
	WriteBufferBytes int  // granted, counted alike
}

// ConnectionIDs makes connection IDs for the transport of one core: ConnectionIDBytes long, the first byte
// is the core, the rest is random. On a shared port the core is the index of the socket in the slice that
// ListenShared returned, since the first byte is what steers packets there.
func ConnectionIDs(core uint8) quic.ConnectionIDGenerator { return connectionIDs(core) }

type connectionIDs uint8

func (c connectionIDs) GenerateConnectionID() (quic.ConnectionID, error) {
	var id [ConnectionIDBytes]byte
	// Guessable IDs would let outsiders aim packets at a connection, so this is no place for a seeded source.
	if _, err := rand.Read(id[:]); err != nil {
		return quic.ConnectionID{}, fmt.Errorf("udp: make a connection ID: %w", err)
	}
	id[0] = uint8(c)
	return quic.ConnectionIDFromBytes(id[:]), nil
}

func (c connectionIDs) ConnectionIDLen() int { return ConnectionIDBytes }

var errNoAddress = errors.New("udp: listen: no address given; use 127.0.0.1:0 for any port of this machine")

// network is the name of addr's family for package net. The unspecified IPv6 address takes both families.
func network(addr netip.AddrPort) string {
	if addr.Addr().Is4() {
		return "udp4"
	}
	return "udp"
}

// listenError says what stood in the way of a bind and what to do about it.
func listenError(addr netip.AddrPort, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		remedy = ": another socket holds this port; stop its process or choose another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		remedy = ": no interface of this machine has this address; choose one of its own, or 0.0.0.0 or [::] for all"
	case errors.Is(err, syscall.EACCES):
		remedy = ": this process may not use this port; choose one from 1024 up or give it CAP_NET_BIND_SERVICE"
	case errors.Is(err, syscall.EAFNOSUPPORT):
		remedy = ": this machine does not speak this address family; choose an address of the other one"
	}
	return fmt.Errorf("udp: listen on %s: %w%s", addr, bare(err), remedy)
}

// bare takes the address, which package net puts into its errors, off again.
func bare(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
