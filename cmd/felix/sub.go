package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"felix/client"
)

// flushDelay is how long a record may wait for others to be written with. A person does not notice it.
const flushDelay = 2 * time.Millisecond

// subOptions are the flags of sub.
type subOptions struct {
	stream   string
	from     string
	offset   uint64
	atOffset bool
	at       time.Time // zero: no time
	shard    uint32
	oneShard bool
	count    int
}

func (a *app) subCommand() *cobra.Command {
	var o subOptions
	cmd := &cobra.Command{
		Use:   "sub STREAM",
		Short: "Subscribe and print records as they come",
		Long: "Sub prints the records of all shards, or of one, as they come, until it is interrupted or has printed --count.\n\n" +
			"Records that a slow subscriber missed are named on standard error.",
		Example:           "  felix sub orders --from earliest\n  felix sub orders --from -10m\n  felix sub orders --shard 3 --from 42 --count 10 -o json",
		Args:              withArgs(1, 1, "the name of a stream"),
		Annotations:       map[string]string{outputs: "raw json"},
		ValidArgsFunction: a.completeStream,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.stream = args[0]
			o.oneShard = cmd.Flags().Changed("shard")
			if !o.parseFrom(time.Now()) {
				return usage(cmd, fmt.Sprintf("from %q is none of latest, earliest, an offset, a time such as 2026-01-31T12:00:00Z or a time ago such as -10m", o.from))
			}
			if cmd.Flags().Changed("count") && o.count < 1 {
				return usage(cmd, fmt.Sprintf("count is %d; give a number from 1", o.count))
			}
			return a.subscribe(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "latest", "where to start: latest, earliest, an offset (on several shards with --shard), a time (RFC 3339), or a time ago such as -10m")
	flags.Uint32Var(&o.shard, "shard", 0, "only this shard")
	flags.IntVar(&o.count, "count", 0, "end after this many records")
	return cmd
}

// parseFrom reads --from. A time ago counts from now.
func (o *subOptions) parseFrom(now time.Time) bool {
	if o.from == "latest" || o.from == "earliest" {
		return true
	}
	if offset, err := strconv.ParseUint(o.from, 10, 64); err == nil {
		o.offset, o.atOffset = offset, true
		return true
	}
	if ago, err := time.ParseDuration(o.from); err == nil && ago < 0 {
		o.at = now.Add(ago)
		return true
	}
	at, err := time.Parse(time.RFC3339, o.from)
	o.at = at
	return err == nil && !at.IsZero()
}

// subscribe prints records until there is a reason to stop.
func (a *app) subscribe(ctx context.Context, o subOptions) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	options, err := o.options(ctx, c)
	if err != nil {
		return err
	}
	sub, err := c.Subscribe(ctx, o.stream, options...)
	if err != nil {
		if !o.at.IsZero() && errors.Is(err, client.ErrInvalid) {
			if p := explainClient(err); p != nil {
				p.next = fmt.Sprintf("felix sub %s --from earliest", o.stream)
				return p
			}
		}
		return err
	}
	defer sub.Close()

	reading, stop := context.WithCancel(ctx)
	defer stop()
	watched := watchReader(reading, a.stdout, stop)
	defer func() { stop(); <-watched }()
	out := newLateWriter(a.stdout, stop)
	err = a.printRecords(reading, sub, o, out)
	if closeErr := out.close(); err == nil {
		err = closeErr
	}
	if reading.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // Ctrl-C, or nobody reads any more
	}
	return err
}

// options says where to start. An offset means one shard, so with several of them it must be named.
func (o subOptions) options(ctx context.Context, c *client.Client) ([]client.SubscribeOption, error) {
	var options []client.SubscribeOption
	if o.oneShard {
		options = append(options, client.Shard(o.shard))
	}
	switch {
	case o.atOffset && !o.oneShard:
		shards, err := c.StreamShards(ctx, o.stream)
		if err != nil {
			return nil, err
		}
		if shards > 1 {
			return nil, &problem{
				exitUsage, fmt.Sprintf("offset %d does not say where to start", o.offset),
				fmt.Sprintf("stream %q has %d shards, each with offsets of its own", o.stream, shards),
				fmt.Sprintf("felix sub %s --from %d --shard 0", o.stream, o.offset),
			}
		}
		options = append(options, client.Shard(0), client.FromOffset(client.Offset(o.offset)))
	case o.atOffset:
		options = append(options, client.FromOffset(client.Offset(o.offset)))
	case !o.at.IsZero():
		options = append(options, client.FromTime(o.at))
	case o.from == "earliest":
		options = append(options, client.FromEarliest())
	}
	return options, nil
}

// printRecords prints until count records are out or the subscription ends.
func (a *app) printRecords(ctx context.Context, sub *client.Subscription, o subOptions, out *lateWriter) error {
	printed := 0
	asJSON := newJSONEncoder(out)
	var line []byte // reused
	for m, err := range sub.All(ctx) {
		var gap *client.GapError
		if errors.As(err, &gap) {
			fmt.Fprintf(a.stderr, "felix: missed %s of shard %d, offsets %d to %d\n", count(int(gap.To-gap.From), "record"), gap.Shard, gap.From, gap.To-1)
			continue
		}
		if err != nil {
			return err
		}
		if a.output == "json" {
			err = asJSON.Encode(newRecord(o.stream, m.Shard, uint64(m.Offset), m.Data))
		} else {
			line = append(append(line[:0], m.Data...), '\n')
			_, err = out.Write(line)
		}
		if err != nil {
			return err
		}
		if printed++; printed == o.count {
			return nil
		}
	}
	return nil
}

// lateWriter writes together what comes close after one another. A failed write is told once more by every later one.
type lateWriter struct {
	mu      sync.Mutex
	buf     *bufio.Writer // guarded by mu
	timer   *time.Timer   // armed while buf holds something; guarded by mu
	armed   bool          // guarded by mu
	failed  error         // first error of a write; guarded by mu
	onError func()
}

func newLateWriter(w io.Writer, onError func()) *lateWriter {
	l := &lateWriter{buf: bufio.NewWriterSize(w, 64<<10), onError: onError}
	l.timer = time.AfterFunc(time.Hour, l.late)
	l.timer.Stop()
	return l
}

// Write writes text within flushDelay.
func (l *lateWriter) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.buf.Write(text)
	if err != nil && l.failed == nil {
		l.failed = err
	}
	if !l.armed {
		l.armed = true
		l.timer.Reset(flushDelay)
	}
	return n, l.failed
}

// late writes what has waited long enough.
func (l *lateWriter) late() {
	l.mu.Lock()
	l.armed = false
	err := l.flush()
	l.mu.Unlock()
	if err != nil {
		l.onError()
	}
}

func (l *lateWriter) flush() error {
	if err := l.buf.Flush(); err != nil && l.failed == nil {
		l.failed = err
	}
	return l.failed
}

// close writes what is left.
func (l *lateWriter) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
	return l.flush()
}

// watchReader calls gone when the reader of the pipe w goes away, also while nothing is written. It returns a channel that
// is closed when it looks no more, which is soon after ctx ends, and at once when w is no pipe.
func watchReader(ctx context.Context, w io.Writer, gone func()) (done <-chan struct{}) {
	ended := make(chan struct{})
	f, ok := w.(*os.File)
	if ok {
		info, err := f.Stat()
		ok = err == nil && info.Mode()&os.ModeNamedPipe != 0
	}
	if !ok {
		close(ended)
		return ended
	}
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			fds := []unix.PollFd{{Fd: int32(f.Fd())}} // no events: errors and hang-ups are always told
			n, err := unix.Poll(fds, 100)             // milliseconds, so that the end of ctx is seen
			if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
				gone()
				return
			}
		}
	}()
	return ended
}
