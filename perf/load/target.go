package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Target is a broker and a way to it. Its methods may be called from any goroutine.
type Target interface {
	// Info says what is driven. It does not change.
	Info() Info
	// Open makes the stream, or looks up the one that spec names, and returns it. An existing stream that is not there gives an
	// error that is ErrNoStream.
	Open(ctx context.Context, spec StreamSpec) (Stream, error)
	// Counters asks the broker. A counter that is not known is left out; a broker that counts nothing returns an empty map. An error
	// means that it could not be asked now.
	Counters(ctx context.Context) (Counters, error)
}

// Info says what a target is.
type Info struct {
	Broker    string // name and, where it is known, version
	Generator string // what publishes: "client", "lean", "nats.go"
	Receiver  string // what subscribes
	// Embedded says that the broker runs in this process, whose CPU cannot be split.
	Embedded bool
	// BufferBytes bounds what is on its way between Publish and the broker's log when nothing answers: queues of the client, windows of
	// the connections, buffers of the sockets. Runs without acks must be larger than twice that.
	BufferBytes int64
	// RecordsPerAnswer is how many records one answer of the broker may be for where each is published by itself; 0 means 1.
	RecordsPerAnswer int
	// Notes are what a reader of the figures should know, such as what was not equal to other targets.
	Notes []string
}

// ErrNoStream is returned by Target.Open for an existing stream that is not there.
var ErrNoStream = errors.New("there is no such stream")

// A StreamSpec is the stream of a run.
type StreamSpec struct {
	Existing   string // its name when it exists; the other fields do not count then
	Shards     int
	Durability Durability
	// Slow says that some subscribers do not read. Without them a full subscriber may hold publishers back, so that nothing is lost;
	// with them it may not.
	Slow bool
}

// A Stream is where records go. Its methods may be called from any goroutine.
type Stream interface {
	// Name is for people.
	Name() string
	Publisher(ctx context.Context, spec PublisherSpec) (Publisher, error)
	// Subscribe returns when every record that is published afterwards will be delivered.
	Subscribe(ctx context.Context, spec SubscriberSpec) (Subscriber, error)
	// Close removes the stream if Open made it, and ends connections. Publishers and subscribers are closed before.
	Close(ctx context.Context) error
}

// A PublisherSpec says how a publisher publishes.
type PublisherSpec struct {
	Index    int // 0, 1, ...
	Keys     []string
	Acks     Acks
	InFlight int // tokens that are not settled at most
	Batch    int
	Size     int
	// Sink gets the outcome of every token.
	Sink Sink
}

// A Sink takes outcomes. Its methods may be called from any goroutine and do not block for long.
type Sink interface {
	// Settle ends the batch of a token; at is when its answer was there, and does not count where none is owed. It is called once for
	// each call of Publish.
	Settle(token int, outcome Outcome, at time.Time)
}

// An Outcome is how a batch ended.
type Outcome struct {
	Fate Fate
	Err  error // why it was not acknowledged
}

// A Fate is what is known of a batch.
type Fate uint8

const (
	Sent    Fate = iota // it was handed to the transport, and no answer is owed
	Acked               // the broker said that it has it
	Refused             // it is certain that the broker does not have it
	Unknown             // the broker may have it
)

// A Publisher publishes for one goroutine.
type Publisher interface {
	// Publish starts to publish records with key number key of the spec, -1 for none. It blocks while there is no room. The records are
	// the caller's again when it returns. Settle is called once with the token, before or after Publish returns.
	Publish(ctx context.Context, token, key int, records [][]byte)
	// Push sends what Publish has held back. It is called before the publisher waits.
	Push(ctx context.Context)
	// Flush waits until every token is settled and, with AcksNone, until the broker has read everything. An error says that some of
	// it may be lost.
	Flush(ctx context.Context) error
	Close() error
}

// A SubscriberSpec says who subscribes.
type SubscriberSpec struct {
	Index int  // 0, 1, ...
	Slow  bool // Receive is never called
	Of    int  // subscribers in all
}

// A Record is one that was received. Payload is valid during the call only.
type Record struct {
	Shard     uint32
	Offset    uint64
	HasOffset bool // records of a shard have offsets without gaps
	Payload   []byte
}

// A Subscriber receives for one goroutine.
type Subscriber interface {
	// Receive waits for records and calls take for each that is there, in order per shard. A *GapError says that records were missed, and the
	// next call goes on behind them. Other errors are for ever, but for the context's.
	Receive(ctx context.Context, take func(Record)) error
	Close() error
}

// A GapError says that the records [From, To) of a shard were not delivered.
type GapError struct {
	Shard    uint32
	From, To uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("shard %d: records %d to %d were not delivered", e.Shard, e.From, e.To-1)
}

// A Counter is something that a broker counts, since its start unless said otherwise.
type Counter string

const (
	StartTime         Counter = "start_time"         // of the process, seconds since 1970: it changes with a restart
	AppendedRecords   Counter = "appended_records"   // records taken into logs
	AckedBatches      Counter = "acked_batches"      // answers that say so
	RefusedBatches    Counter = "refused_batches"    // answers that refuse
	DroppedBatches    Counter = "dropped_batches"    // unanswered ones that were not taken
	DroppedDeliveries Counter = "dropped_deliveries" // records left out for slow subscribers
	Syncs             Counter = "syncs"              // of the disk
	Groups            Counter = "groups"             // writes of the log
	ZeroedGroups      Counter = "zeroed_groups"      // of these into blocks that were written before
	Packets           Counter = "packets"            // UDP datagrams in and out
	PacketBytes       Counter = "packet_bytes"       // their bytes
	CPUSeconds        Counter = "cpu_seconds"        // of the broker's process, unless it is this one
	RSSBytes          Counter = "rss_bytes"          // now
	SocketBytes       Counter = "socket_bytes"       // receive buffer of a socket
)

// Counters is a snapshot. An absent one is not known.
type Counters map[Counter]float64

// since returns c - before, and whether both are known.
func (c Counters) since(before Counters, name Counter) (float64, bool) {
	now, ok := c[name]
	then, was := before[name]
	return now - then, ok && was
}
