package main

import "time"

// parts are all of them, in the order in which they run.
var parts = []part{
	{"streams", "publish cost with many streams", estimateStreams, measureStreams},
	{"connections", "publish cost with idle connections, and what keeping them alive costs", estimateConnections, measureConnections},
	{"log", "publish cost of a durable stream with a large log", estimateLog, measureLog},
	{"memory-connection", "memory of idle connections against bare quic-go", estimateMemoryConnection, measureMemoryConnection},
	{"memory-stream", "memory of idle streams", estimateMemoryStream, measureMemoryStream},
	{"memory-subscriber", "memory of idle subscribers", estimateMemorySubscriber, measureMemorySubscriber},
	{"cores", "records per broker CPU second with one core and two", estimateCores, measureCores},
	{"record", "broker CPU per acked record, few connections and many", estimateRecord, measureRecord},
}

// Rates for the estimates, which are of a small machine.
const (
	streamsPerSecond     = 2000      // made, with a record each
	connectionsPerSecond = 500       // opened
	fillPerSecond        = 200 << 20 // payload bytes into the log
)

// seconds is n at a rate.
func seconds(n, perSecond int64) time.Duration {
	return time.Duration(float64(n) / float64(perSecond) * float64(time.Second))
}
