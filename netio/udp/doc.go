// Package udp is the socket under quic-go: the broker, the Go client and the probes give a Conn to every
// quic.Transport.
//
// It owns the descriptor, what is read and not yet delivered, the addresses of peers, the sockets of a shared
// port and the steering between them. It leaves to its users the transports, their keys and TLS, which cores
// listen on which ports, and the flow-control windows that keep quic-go's own queues from overflowing.
//
//	kernel --recvmmsg--> reader: 4 messages, each one datagram or a super-buffer of up to 64
//	                       |  split, route each datagram
//	                       |---- ours -----------> ReadBatch --> quic-go (copied into its pooled buffers)
//	                       |---- a sibling's ----> the sibling's inbox (256), its ReadBatch
//	kernel <---sendmsg--- WriteMsgUDP <-- quic-go's send goroutines, side by side
//
// # Threading
//
// Reads of one Conn take turns; quic-go has one goroutine for them, on the runtime's poller. Sends run side
// by side: they hold the descriptor open but take no lock. The package starts no goroutine.
//
// # Invariants
//
//  1. ReadBatch returns datagrams or a lasting error, never nothing and never an error that passes by itself:
//     quic-go would hand out the messages of the read before again. Empty datagrams are skipped.
//  2. Buffers[0] is filled or replaced, never kept. quic-go v0.65 holds its pooled buffer beside the message
//     and releases that one, so a longer slice in its place is the collector's business alone.
//  3. A *net.UDPAddr that was handed out never changes; one peer has one as long as it is remembered.
//  4. Where a packet belongs on a shared port is a function of its bytes (route). The kernel's program is
//     the same function; FuzzRoute holds the two together.
//  5. A Conn's socket has a read deadline in the past exactly while its inbox holds something.
//  6. Siblings hand nothing to a closed member; what is on its way while it closes is lost.
//
// # Limits
//
// 64 sockets on a port. Datagrams of 16 KiB, longer ones are dropped and counted. 8,192 remembered peers, then the
// oldest half is forgotten. 256 datagrams in an inbox, then they are dropped and counted. 6.35 ms of pauses for a
// device that is full, then the packet counts as sent. Memory of a socket: 256 KiB for reading (touched as far
// as reads fill it), at most 2 MiB of addresses, and for the inbox of a member at most 4 MiB; none until used.
//
// # The shared port
//
// The first byte of our 7-byte connection IDs is the member. A classic BPF program on the SO_REUSEPORT group
// reads it from short headers and from long headers with a 7-byte ID; other long headers are first packets, whose
// ID the client chose at random, and go by four bytes of it modulo n. Somebody who chooses IDs on purpose can
// so choose a member, and gains no more than he would by choosing source ports under the kernel's hash.
//
// Steering alone is not enough. A super-buffer goes where its first datagram belongs and may hold others'; a
// closed member's place is taken by the last one's socket; packets arrive before the program is attached; and
// where the kernel refuses the program, it hashes addresses and ports. So every datagram is routed again after
// the split, and a foreign one is handed over. Without the program first packets stay where they came: spreading
// them would make each later packet a hand-over, for the 6 % of the work that a core does itself.
//
// # Decisions
//
// Measured 2026-11-29, 2-vCPU EPYC VM shared with other work, Linux 6.18, Go 1.26.8, quic-go v0.65.0, medians
// of 7 interleaved runs of conn_bench_test.go, client and server in one process:
//
//		                                  bulk, 4 connections           256 B echo
//		package net's socket              753 MB/s, 2.55 CPU ms/MB      p50 22 us, 10 allocations
//		Conn without receive offload      785 MB/s, 2.44 CPU ms/MB      p50 22 us,  4 allocations
//		Conn                             1185 MB/s, 1.64 CPU ms/MB      p50 22 us,  4 allocations
//
//	  - No yield between super-buffers. runtime.Gosched after each, or before each read, cost 5 to 9 % more CPU
//	    per MB with 4 connections (1.72 ms without; 1.81 and 1.87), 1 to 3 % with one, and the senders had more
//	    packets to repair: 0.8 to 0.9 per MB with 4, and 0.6 against 2.3 to 3.0 with one.
//	  - 4 messages a call. In bulk 1, 4 and 8 are level; with 100 connections that echo 256 B a call brings 3.7
//	    packets, and a request costs 17.0 us of CPU instead of 18.3 (one quiet run). 8 brought nothing more and
//	    take 512 KiB. Without receive offload 8 messages of 16 KiB, as quic-go itself does.
//	  - Datagrams are copied out of the super-buffer, which costs 1.4 % of the process in bulk. Reading straight
//	    into quic-go's buffers could save half of that for the one segment size that fits them.
//	  - Sends take no write lock (RawConn.Control), so connections on one socket do not queue up behind each other,
//	    and build the address in place, which is cheaper than any cache. Only a send that meets a full socket buffer
//	    waits in the poller under the lock. EMSGSIZE and EIO pass through: quic-go acts on them.
//	  - The first member of a shared port binds alone and opens the port afterwards. With SO_REUSEPORT from the
//	    start, a second broker of the same user would join the port unnoticed.
//	  - The wake-up of a sibling is a read deadline: the only way to reach a goroutine in the poller that
//	    needs no second descriptor. It costs two calls per emptied inbox and nothing where nothing is foreign.
//	  - Kernel drops are asked for (SO_MEMINFO) when Stats is called, not carried on every packet.
//
// Start reading at conn_linux.go, then read_linux.go and handover_linux.go.
package udp
