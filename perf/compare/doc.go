// Compare measures two builds or two configurations of the broker in turn and says whether they differ.
//
//	go run ./perf/compare -a rev:HEAD~1 -b ""                       the commit before against this tree
//	go run ./perf/compare -a "" -b "FELIX_CORE_SHARDS=2"            two configurations
//	go run ./perf/compare -a bin:/tmp/old/felixd -b bin:/tmp/new/felixd -cells memory-256B-1,lone-on_commit -rounds 20 -json out.json
//
// A side is words: at most one rev:REVISION (built in a work tree of its own) or bin:FILE (a felixd), otherwise this tree; and any
// NAME=VALUE for the environment of its broker. Each run has a fresh felixd with empty data, so that no run leaves anything to the next; both sides
// are driven by the same generator, the one of this tree.
//
// # Order and statistics
//
// A B B A A B B A ..., after one run of each that does not count. For each figure of a cell package stats compares the runs of both sides:
// Welch's t on logarithms, the effect b/a - 1 with its 95 % interval, and a verdict: faster, slower, or not shown when the interval
// holds 0. With many cells and figures one in twenty is shown by chance: look at the interval, and run again what surprises.
//
// A void run of a side is made again, in a cell at most as often as there are rounds; then compare ends with an error, since a side that loses
// records is not slower or faster. So is a run that met virtual CPUs that their host had moved apart, within bounds (package take).
//
// Start reading at run in main.go.
package main
