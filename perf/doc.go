// Package perf measures felix: its benchmarks run the broker, the client and the bare ceilings in one process and one
// run, so that every figure stands beside what the machine could do in the same minute.
//
// Absolute figures move between machines, ratios hold. A benchmark here reports both: the rate or latency it saw, and
// the share of the ceiling measured just before it. Results has recorded runs, each with machine, kernel, commit and command.
//
//	load      the engine of felix bench and of what follows: drives any broker, checks every count
//	profile   one command that runs a cell and leaves profiles of the broker
//	compare   two builds or two configurations in turn, with statistics
//	stats     the statistics
//	matrix    a whole session in one command: cells, ceilings, NATS, charts, one page
//	scale     what more streams, connections, log, subscribers and cores cost
//	peers     felix and NATS in turn, one pair per promise; a module of its own
//	take      makes the runs of a session, and again those that do not count
//	session   what a measuring session leaves behind, how it is judged and printed
//	ceiling   the probes that say what the machine can do without a broker
//	crash     kills brokers and reads back what is left
//	soak      holds a broker against the rules of pressure
//	backends  compares ways to write the log
//	coldstart measures the start on a large log
//
// The benchmarks check their counts: every publish is acknowledged and, where somebody subscribes, every record is
// delivered, or the run fails. BUILD.md says how to run and profile them.
package perf
