// Felixd runs a broker.
//
//	felixd                            start with defaults: loopback, development certificate, any token
//	felixd --listen 10.0.0.5:5000 --auth any
//	felixd --config felix.yaml        flat YAML keys; environment and flags beat it
//	felixd config show --effective    every setting, its value and where that comes from
//	felixd config check               every problem of the configuration, without starting
//
// The flags are the table of felix.Settings with dashes for underscores; README.md has it in full. Everything else is
// in package felix: this command adds flags, signals, the banner and the log.
//
// # What it leaves on disk
//
// The data directory; the file of --ready-file, JSON {listen, ports, admin, ca_file, pid}, written once clients can
// connect; and the same JSON as felix/contexts/local-PID.json in the configuration directory of the user, by which
// the command line tool finds a development broker. The last one goes away at a clean end.
//
// # Signals
//
// SIGTERM and SIGINT drain: new streams are refused, accepted work is finished and answered, connections are closed. A
// second signal ends the process at once.
//
// # Exit codes
//
//	0  ended by a signal, everything accepted was finished
//	1  could not start, or could not finish; one sentence for each problem on standard error
//	2  usage
package main
