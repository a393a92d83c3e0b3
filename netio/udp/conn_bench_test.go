//go:build linux

package udp

import (
	"context"
	"io"
	"net"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"
)

// sockets are the ways to give quic-go a socket that the benchmarks compare.
var sockets = []struct {
	name string
	open func(b *testing.B) net.PacketConn
}{
	{"plain", func(b *testing.B) net.PacketConn {
		u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		check(b, err)
		b.Cleanup(func() { u.Close() })
		return u
	}},
	{"gro-off", variant(func(s *settings) { s.DisableGRO = true })},
	{"gro-on", variant(func(*settings) {})},
	{"gro-on-batch-1", variant(func(s *settings) { s.batch = 1 })},
	{"gro-on-batch-8", variant(func(s *settings) { s.batch = 8 })},
}

func variant(change func(*settings)) func(b *testing.B) net.PacketConn {
	return func(b *testing.B) net.PacketConn {
		s := defaults(Options{})
		change(&s)
		c, err := listen(loopback4, false, s)
		check(b, err)
		b.Cleanup(func() { c.Close() })
		return c
	}
}

// BenchmarkSink moves bytes one way over 4 connections into one server socket. Client and server share the
// process. lost/MB counts the packets the senders had to repair.
func BenchmarkSink(b *testing.B) {
	const chunk, conns = 256 << 10, 4
	for _, s := range sockets {
		b.Run(s.name, func(b *testing.B) {
			server, client := transport(b, s.open(b), 0), transport(b, s.open(b), 0)
			ln, err := server.Listen(serverTLS(b), quicConfig())
			check(b, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					conn, err := ln.Accept(context.Background())
					if err != nil {
						return
					}
					wg.Go(func() {
						str, err := conn.AcceptUniStream(context.Background())
						if err == nil {
							buf := make([]byte, 128<<10)
							for err == nil {
								_, err = str.Read(buf)
							}
						}
						conn.CloseWithError(0, "")
					})
				}
			})
			b.SetBytes(int64(chunk * conns))
			var cs []*quic.Conn
			var ss []*quic.SendStream
			for range conns {
				c, err := client.Dial(b.Context(), server.Conn.LocalAddr(), clientTLS(), quicConfig())
				check(b, err)
				str, err := c.OpenUniStreamSync(b.Context())
				check(b, err)
				cs, ss = append(cs, c), append(ss, str)
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu()
			var senders sync.WaitGroup
			for _, str := range ss {
				senders.Go(func() {
					buf := make([]byte, chunk)
					for range b.N {
						if _, err := str.Write(buf); err != nil {
							b.Error(err)
							return
						}
					}
					str.Close()
				})
			}
			senders.Wait()
			for _, c := range cs {
				<-c.Context().Done() // the server closes when it has read everything
			}
			b.StopTimer()
			b.ReportMetric(float64((cpu()-before).Microseconds())/(float64(b.N*chunk*conns)/1e6), "cpu-us/MB")
			var lost uint64
			for _, c := range cs {
				lost += c.ConnectionStats().PacketsLost
			}
			b.ReportMetric(float64(lost)/(float64(b.N*chunk*conns)/1e6), "lost/MB")
			if c, ok := server.Conn.(*Conn); ok {
				st := c.Stats()
				b.ReportMetric(float64(st.PacketsReceived)/float64(st.ReadCalls), "pkts/read")
			}
			ln.Close()
			server.Close()
			client.Close()
			wg.Wait()
		})
	}
}

// BenchmarkEcho has one request of 256 bytes in flight.
func BenchmarkEcho(b *testing.B) {
	for _, s := range sockets {
		b.Run(s.name, func(b *testing.B) {
			server, client := transport(b, s.open(b), 0), transport(b, s.open(b), 0)
			ln, err := server.Listen(serverTLS(b), quicConfig())
			check(b, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				conn, err := ln.Accept(context.Background())
				if err != nil {
					return
				}
				str, err := conn.AcceptStream(context.Background())
				if err != nil {
					return
				}
				buf := make([]byte, 256)
				for {
					n, err := str.Read(buf)
					if err != nil {
						return
					}
					if _, err := str.Write(buf[:n]); err != nil {
						return
					}
				}
			})
			c, err := client.Dial(b.Context(), server.Conn.LocalAddr(), clientTLS(), quicConfig())
			check(b, err)
			str, err := c.OpenStreamSync(b.Context())
			check(b, err)
			buf := make([]byte, 256)
			took := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				if _, err := str.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(str, buf); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			b.StopTimer()
			sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
			c.CloseWithError(0, "")
			ln.Close()
			server.Close()
			client.Close()
			wg.Wait()
		})
	}
}

// BenchmarkManyEchoes has one request of 256 bytes in flight on each of 100 connections.
func BenchmarkManyEchoes(b *testing.B) {
	const conns = 100
	for _, s := range sockets {
		b.Run(s.name, func(b *testing.B) {
			server, client := transport(b, s.open(b), 0), transport(b, s.open(b), 0)
			ln, err := server.Listen(serverTLS(b), quicConfig())
			check(b, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					conn, err := ln.Accept(context.Background())
					if err != nil {
						return
					}
					wg.Go(func() {
						str, err := conn.AcceptStream(context.Background())
						if err != nil {
							return
						}
						buf := make([]byte, 256)
						for {
							n, err := str.Read(buf)
							if err != nil {
								return
							}
							if _, err := str.Write(buf[:n]); err != nil {
								return
							}
						}
					})
				}
			})
			var cs []*quic.Conn
			var ss []*quic.Stream
			for range conns {
				c, err := client.Dial(b.Context(), server.Conn.LocalAddr(), clientTLS(), quicConfig())
				check(b, err)
				str, err := c.OpenStreamSync(b.Context())
				check(b, err)
				cs, ss = append(cs, c), append(ss, str)
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu()
			var left atomic.Int64
			left.Store(int64(b.N))
			var senders sync.WaitGroup
			for _, str := range ss {
				senders.Go(func() {
					buf := make([]byte, 256)
					for left.Add(-1) >= 0 {
						if _, err := str.Write(buf); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(str, buf); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			senders.Wait()
			b.StopTimer()
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-us/op")
			if c, ok := server.Conn.(*Conn); ok {
				st := c.Stats()
				b.ReportMetric(float64(st.PacketsReceived)/float64(st.ReadCalls), "pkts/read")
			}
			for _, c := range cs {
				c.CloseWithError(0, "")
			}
			ln.Close()
			server.Close()
			client.Close()
			wg.Wait()
		})
	}
}

func cpu() time.Duration {
	var r unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
