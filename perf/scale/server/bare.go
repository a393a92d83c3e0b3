package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/quic-go/quic-go"

	"felix"
	"felix/netio/udp"
	"felix/netio/wire"
	"felix/perf/ceiling"
)

// quicConfig is the broker's: package netio, with the defaults of its settings, which README lists.
func quicConfig() *quic.Config {
	c := &quic.Config{
		MaxIdleTimeout:                 6 * time.Second,
		KeepAlivePeriod:                2 * time.Second,
		MaxIncomingStreams:             1024,
		MaxIncomingUniStreams:          64,
		InitialStreamReceiveWindow:     16 << 10,
		MaxStreamReceiveWindow:         16 << 20,
		InitialConnectionReceiveWindow: 32 << 10,
		MaxConnectionReceiveWindow:     64 << 20,
	}
	c.InitialPacketSize, c.DisablePathMTUDiscovery = udp.PacketSizes(0, true)
	return c
}

// bare accepts connections and their streams, and answers the first frame of each.
func bare(ctx context.Context, o options) error {
	listen, err := netip.ParseAddrPort(o.listen)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.data, 0o700); err != nil {
		return err
	}
	ca := filepath.Join(o.data, "cert.pem")
	certificate, err := ceiling.Certificate()
	if err != nil {
		return err
	}
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600); err != nil {
		return err
	}
	socket, err := udp.Listen(listen, udp.Options{})
	if err != nil {
		return err
	}
	defer socket.Close()
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	listener, err := transport.Listen(&tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"felix/1"}, MinVersion: tls.VersionTLS13}, quicConfig())
	if err != nil {
		return err
	}
	defer listener.Close()
	admin, err := net.Listen("tcp", o.admin)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: adminHandler()}
	defer web.Close()
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(admin) }()
	go func() {
		for {
			conn, err := listener.Accept(ctx)
			if err != nil {
				return
			}
			go serve(ctx, conn)
		}
	}()
	ready := felix.Ready{Listen: socket.AddrPort().String(), Ports: []uint16{}, Admin: admin.Addr().String(), CAFile: ca, PID: os.Getpid()}
	if err := ready.WriteFile(o.ready); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// adminHandler serves what perf/load asks of a broker, as far as a process without one can tell it.
func adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { metrics.WriteProcessMetrics(w) })
	return mux
}

// serve accepts the streams of a connection.
func serve(ctx context.Context, conn *quic.Conn) {
	for {
		stream, err := conn.AcceptStream(ctx)
		if err != nil {
			return
		}
		go answer(stream)
	}
}

// maxAuthBytes bounds the frame that is answered, as the broker's preauth_max_frame_bytes does.
const maxAuthBytes = 64 << 10

// answer reads one frame, answers it, and waits for more, which does not come.
func answer(stream *quic.Stream) {
	if skipFrame(stream) != nil {
		stream.CancelRead(0)
		stream.CancelWrite(0)
		return
	}
	if _, err := stream.Write(wire.AppendMessage(nil, &wire.AuthOK{})); err != nil {
		return
	}
	var next [1]byte
	_, _ = stream.Read(next[:]) // returns when the connection ends
	stream.CancelRead(0)
	_ = stream.Close()
}

// skipFrame reads a frame and forgets it.
func skipFrame(r io.Reader) error {
	var head [wire.HeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		return err
	}
	if h.Length > maxAuthBytes {
		return errors.New("the frame is too long")
	}
	_, err = io.ReadFull(r, make([]byte, h.Length))
	return err
}
