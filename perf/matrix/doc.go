// Matrix makes a measuring session: every cell of the tables on fresh brokers, the ceilings of the same minutes, and NATS beside felix.
//
//	go run ./perf/matrix                                         all of it, about 40 minutes on two CPUs; it says so when it begins
//	go run ./perf/matrix -against perf/results/2026-11-30-0123456   the same, then the medians of both beside each other
//	go run ./perf/matrix -cells '^lone|^memory' -peers=false -runs 10 -duration 5s
//	go run ./perf/matrix -brief -cells '^memory-256B-64$' -peers=false -o /tmp/out
//	go run ./perf/matrix -read DIR -against OTHER                prints an old session again; measures nothing
//	go run ./perf/matrix -readme DIR                             puts the table of a session into README.md
//
// It leaves perf/results/DATE-COMMIT with everything that package session names: JSON, raw reports, charts, report.md and report.html, which is
// one file with the charts in it. The report is written again after each cell, so that a session that is cut short leaves what there is.
//
// # Order of a session
//
//	build all of it -> ceilings -> cells, first half -> ceilings -> cells, second half -> ceilings -> idle -> perf/peers -> report
//
// A cell is -runs runs that count, five unless said otherwise, after one that does not, each with a felixd of its own with empty data, one after the
// other; they are not interleaved with those of other cells, but for cells that are compared with another (cell.against): these
// two run A B, then A B B A. For two revisions take perf/compare.
// A void run is made again, at most maxVoids times in a cell; then it stands and the cell is void.
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
// Start reading at run in main.go, then measure.go.
package main
