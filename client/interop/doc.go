// Package interop runs the published Python client of the protocol, felix-client 0.6.2 as the package registry gives it,
// against a real felixd. It holds tests only.
//
// Our own client and our own broker could agree on a misreading of the protocol. This client was written by others and
// sees nothing of our code but bytes on a socket, so it cannot.
//
// # How a test works
//
//	go test ── starts ──> felixd            one per test: free ports, a data directory of its own, ended with SIGTERM
//	   │                    ▲   ▲
//	   │ JSON lines         │   └── UDP proxy in some tests: a link that falls silent, or whose address changes
//	   └────────────> driver.py             the Python client in a virtual environment; either of its two surfaces
//
// TestMain builds felixd and makes the virtual environment, once for all tests of a run, in a temporary directory that
// is removed at the end. The driver carries out one command per line and answers with one line; it decides nothing. Every
// expectation stands in Go. quickstart.py and quickstart_async.py show instead that the two programs of the client's
// own README run as they stand there.
//
// # Rules
//
//  1. The client is unmodified, and configured only by what its constructor takes. FELIX_ variables are removed from the
//     environment of both processes.
//  2. Records are compared byte for byte and offset for offset: what a test publishes is what it must see, once each.
//  3. Nothing waits for a time. Tests wait for an answer, for a datagram, for a gauge to fall to 0, or for a process to end, and give up
//     after 90 s.
//
// # When it runs
//
// Wherever python3 with its venv module and the package can be had. Elsewhere, and with -short, every test is skipped
// and says why. With FELIX_INTEROP=require that is a failure: .ci/run sets it. FELIX_TEST_PINNED=1 starts the brokers
// with pinned cores.
//
// # Decisions
//
//   - One driver with commands instead of a script per test: a story that has both clients, the broker and the link in
//     it reads from top to bottom in one Go function.
//   - The synchronous surface runs on threads of the driver's event loop. The same stories then run over both.
//   - driver.py and quickstart_async.py end with os._exit. Threads of the asynchronous client call into the interpreter while
//     it is torn down, which crashed 2 of 12 runs.
//   - The silent link comes back when the client dials anew, and not after a time. That it dials shows that it gave the
//     old connection up, after its idle timeout of 6 s.
//
// Start reading at main_test.go, then driver_test.go and scripts/driver.py; resume_test.go is the longest story.
package interop
