// Felix is the command line tool: publish, subscribe, look after streams, try everything out.
//
//	felix demo                            a broker in this process, 200,000 records checked one by one
//	felix pub orders hello                publish; without messages the lines of standard input
//	felix sub orders --from earliest      subscribe to all shards; --shard, --count, -o raw|json
//	felix stream create orders --shards 8 streams: create, ls, info, set, rm
//	felix bench pub --batch 64            rates and latencies of a broker, every count checked: pub, e2e, fanout; --smoke
//	felix subscription ls orders          who subscribes, in which state, how far behind
//	felix wal verify ./felix-data         the log on disk, without a broker: inspect, verify, dump
//	felix version
//
// Pub and sub talk to the broker with package client, the stream verbs to its admin listener over HTTP. Without --server
// and --admin the development broker of this user is taken: felixd leaves a note of itself, felix.FindContext reads it.
// Every global flag has a twin in the environment (felix --help names them); the flag wins.
//
// Bench without --server starts a broker of its own: this program again, as the hidden command bench-broker, so that the CPU of
// broker and generator can be told apart. What it does is package perf/load.
//
// # Output
//
// Results go to standard output, everything else to standard error. Tables are for people: sizes and numbers are
// rounded and grouped. JSON is for programs: its fields and their order are kept by golden tests in testdata.
//
// # Errors and exit codes
//
// An error has three lines: what happened, why with values, what to run next. errors.go makes them from what package client
// and the admin listener answer; no chain of Go errors reaches a person.
//
//	0 ok   1 failure   2 usage   3 not found   4 denied   5 unavailable or time-out   6 conflict
//
// # Ending
//
// Ctrl-C ends sub with 0; a reader that closes the pipe does the same, also while the stream is quiet. Ctrl-C in any
// other command gives up what is not answered, and says so; bench prints what it has measured. A second one ends the process
// at once.
//
// Start reading at run in main.go, then pub.go.
package main
