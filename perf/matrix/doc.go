// Matrix makes a measuring session: every cell of the tables on fresh brokers, the ceilings of the same minutes, and NATS beside felix.
//
//	go run ./perf/matrix                                         all of it, about 40 minutes on two CPUs; it says so when it begins
//	go run ./perf/matrix -against perf/results/2026-11-30-0123456   the same, then both beside each other, in medians and in shares of the ceilings
//	go run ./perf/matrix -twice                                  two sessions at once, run by run in turn, and both beside each other
//	go run ./perf/matrix -cells '^lone|^memory' -peers=false -runs 10 -duration 5s
//	go run ./perf/matrix -brief -cells '^memory-256B-64$' -peers=false -o /tmp/out
//	go run ./perf/matrix -read DIR -against OTHER                prints an old session again; measures nothing
//	go run ./perf/matrix -readme DIR                             puts the table of a session into README.md
//
// It leaves perf/results/DATE-COMMIT with everything that package session names: JSON, raw reports, charts, report.md and report.html, which is
// one file with the charts in it. The report is written again after each round, and when a round is cut short, with the cells that have a run that counts.
//
// # Order of a session
//
//	build all of it -> round 0 -> rounds 1 to -runs -> idle -> perf/peers, in rounds likewise -> report
//
//	round:  ceilings, once (not in round 0) -> cell, cell, cell against cell, cell ... in the order of the tables
//
// Each run has a felixd of its own with empty data. A round has one run of every cell; round 0 does not count. CPUs of a shared host change
// their speed by 20 to 40 % for minutes at a time (2026-11): five runs of a cell one after the other fall into one such phase, and
// medians of two sessions on one commit were apart by more than 10 %. In rounds the runs of a cell, and the samples of the ceilings, are spread
// over the whole session, and each median is over the same phases. What it costs: the spread of a cell now holds these phases as well.
//
// Cells that are compared with another (cell.against) run A B in round 0; then the pairs of A B B A ... are spread evenly over the rounds, a pair
// back to back, so that both sides of it see the same phase: ten pairs in five rounds are A B B A in each. Where they do not divide, some rounds have
// one more. For two revisions take perf/compare.
//
// A void run is made again at once, at most maxVoids times in a cell and session; then it stands and the cell is void. So is a run that met virtual CPUs
// that their host had moved apart, within bounds (package take). A run that fails ends the
// session, but for a pair of perf/peers, which is left out of the rounds that follow; then the command ends with an error after all else.
// With -brief there is round 1 alone, and it counts.
//
// # Two at once
//
// Two sessions of one commit that are made one after the other meet two machines, where a host moves its virtual ones between CPUs and gives them more
// or less of the memory: without a broker the bare loop had 27 % less, and the echo 20 % more, 39 minutes later (2026-11). What they differ by says nothing of the
// broker or of this program then. With -twice both meet the same: every run of the first has one of the second beside it, A B in a round and B A in the
// next, each on its own fresh broker, with samples of the ceilings of its own. What they differ by is what medians of so many runs are good for.
//
// # Cells that are compared
//
//   - Subscribers that do not read: the same 40 that do, alone and beside 10 that stall, at 500 records per second, in ten pairs at least. At
//     that rate two CPUs have time to spare, so that a difference is the broker's and not that of who gets the CPU. The ten are in place
//     and behind when the measured time begins (cell.settle).
//   - The jumbo build: broker and generator of both builds, each a process. The generator is this program, built by .ci/jumbo or as it is, which
//     makes one run with -one; so the two differ in nothing but the build. -jumbo=false leaves these cells out.
//
// # Cells
//
// cells.go has the list: those of perf/load by their names, and what the tables have besides. Fire and forget has no rows of empty
// records: in seconds they cannot fill the buffers on the way twice, which such a run must do to say something.
//
// # Decisions
//
//   - perf/peers runs as a command in its own module: nothing here, and so nothing of felix, depends on NATS.
//   - Charts are made by gonum.org/v1/plot in chart.go, and nothing else imports it; a test holds that.
//   - The ceilings run between brokers, never beside one, in both forms of perf/ceiling: with a server process of their own, which is what
//     broker and generator here are compared with, and in one process, which says what the second process costs.
//   - fio is asked when it is installed, with psync and fdatasync into blocks that were written before, as the log writes.
//
// Start reading at run in main.go, then rounds.go and measure.go.
package main
