// Package stats says whether two sets of measurements differ, and by how much.
//
// Compare is Welch's t-test on logarithms: measurements of speed spread in proportion to their size, and the difference of logarithms is
// the ratio that a reader wants, with an interval around it. It assumes that the runs do not influence each other, which
// interleaving them (Interleave) makes more true, and that their logarithms are about normal, which a fresh process per run makes more
// true. It does not assume that both sides spread alike.
//
// MeanInterval is for differences of pairs that were measured together.
//
// The package has no dependencies: Student's distribution is computed from the incomplete beta function.
package stats
