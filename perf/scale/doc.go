// Scale measures what it costs when there is more of everything: streams, connections, log, subscribers and cores that the load does not
// use. It builds and starts its own brokers and leaves scale.json and scale.md in a directory:
//
//	go run ./perf/scale -o DIR                     everything: about 15 minutes on two CPUs, 41 GiB of disk
//	go run ./perf/scale -o DIR -only 'log|cores'   parts of it
//	go run ./perf/scale -o DIR -log-bytes 2GiB     less disk
//
// # Parts
//
//	streams            publish cost with 1, 100 and 10,000 streams; all but one have a record and idle
//	connections        publish cost with 1, 100 and 1,000 idle connections beside those of the load; what keeping them alive costs, apart
//	log                publish cost of a durable stream whose log is 1 and 20 GiB, records one by one and in batches of 64
//	memory-connection  memory of 1,000 idle connections, in felix and in a bare quic-go server (package server) in turn
//	memory-stream      memory of 10,000 idle streams
//	memory-subscriber  memory of 1,000 subscribers of one stream that share 16 connections
//	cores              records per broker CPU second with one core and with two, pinned and not
//	record             broker CPU per acked record, in the client's shape and in that of 256 plain connections, one record per packet
//
// # Order and statistics
//
// A run has a fresh broker. The variants of a part are run in turn, forward and backward, A B C C B A ..., after one run of each that does not
// count, so that a drift of the machine falls on all alike. A value is the median of the runs that count, a ratio that of two medians, the
// spread (max - min) / median. Its 95 % interval is Welch's on logarithms for ratios, Student's for values (package stats). A row meets its
// target when the whole interval does, misses it when none of it does, and is not shown otherwise: more -runs narrow the interval.
// A void run is made again, at most twice; a part that stays void has no verdict. So is a run that met virtual CPUs that their host had moved apart,
// within bounds (package take).
//
// # What is measured how
//
//   - Publish cost is the broker's CPU per acked record and the acked rate, 256 B records. Targets speak of the cost against the smallest size.
//     Idle connections and their keep-alives are held by the generator, which shares the CPUs: rates suffer from it, the broker's CPU does not.
//   - Keep-alive CPU is the broker's with idle connections and no load, over -idle. It is taken off the cost of the runs with connections.
//   - Memory is heap in use and stacks after four collections; RSS is beside it and holds what was freed and not yet returned. It is the difference
//     between N idle things and a few, which have warmed up what exists once, divided by N.
//   - The smaller log is made anew for each run. The larger one is made once, and grows by what the runs publish, which the report says.
//
// # Limits
//
// Brokers and logs are in the directory for temporary files (TMPDIR) and are removed; the disk is asked before a log is written. One broker
// runs at a time. With -brief every size is small and nothing means anything.
//
// Start reading at run in main.go, then bench.go for the order and judge.go for the verdicts.
package main
