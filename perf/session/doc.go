// Package session is what one measuring session leaves behind and how it is judged: the cells that perf/matrix ran, the pairs that
// perf/peers ran, and the ceilings of the same minutes, in one directory under perf/results.
//
//	cells.json      Cells: machine, command, ceilings, every cell with all of its runs
//	peers.json      Peers: every pair with all runs of both sides
//	raw/            the report of every run as perf/load made it
//	charts/*.svg    made by perf/matrix, like the next two
//	report.md       tables: what is missed and lost first
//	report.html     the same with the charts, one file
//
// It starts nothing and measures nothing: perf/peers, which is a module of its own, and perf/matrix fill the types in, and everything
// printed is computed from them. So an old session can be printed again, and two can be compared.
//
// # What is judged
//
//   - A cell is the medians of runs with a broker process each, the first left out (load.Join). Its spread is (max - min) / median.
//   - The spread of all cells is one row of the targets, by the worst; each cell's own is in its table.
//   - What readers that stall do to others is the 95 % interval of the mean difference over pairs of runs (stats.MeanInterval), which were made
//     one after the other: what the machine does to both is no difference.
//   - Its share of a ceiling is taken from its shape (CeilingOf): the echo E and the disk's sync D for a lone publish, otherwise the nearest of
//     the bare loop L, for records published one by one, the bulk sink S, and the disk's bandwidth Z. E, L and S are those with two
//     processes; sessions of before 2026-12 have them in one process only, and their shares are of these (Ceilings.L).
//   - Targets holds the rows of DESIGN section 10 that a session can answer. A row whose cells were not run is "not measured", one that
//     rests on a void run is "void"; neither counts as met.
//   - What two numbers of a session in rounds have to do with each other, a cell with its ceiling or with another cell, a pair's sides, is
//     the median of that in each round (rounds.go), since the machine is not the same in all of them.
//   - A pair is ahead, behind, or not shown when the 95 % interval of its ratio holds 1: that of the mean of the logarithms over the rounds.
//     A row is listed as lost when felix is behind in the median, shown or not.
//
// # Decisions
//
//   - Two sessions are compared by medians and by shares of the ceilings, each of its own session (Against): medians move with the machine,
//     shares hold. A pair is compared by its ratio as well, which holds likewise.
//   - Ceilings are sampled in every round that counts, like the cells, and each is the median of its samples: both are medians over the same
//     phases of a machine that drifts within a session. So spreads hold the drift besides what runs differ by.
//   - Rows are sorted by how far they miss, worst first, so that what is bad cannot hide below what is good.
//
// Nothing here is safe for concurrent use. Start reading at session.go, then judge.go and pairs.go; markdown.go prints.
package session
