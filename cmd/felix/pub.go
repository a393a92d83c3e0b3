package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"felix/client"
)

// maxRecord bounds a line of standard input: with names and head it fits into a frame of 16 MiB.
const maxRecord = 15 << 20

// inFlight bounds the batches that are sent and not answered.
const inFlight = 256

// ackMode is what a publisher waits for.
type ackMode string

const (
	acksNone  ackMode = "none"
	acksEach  ackMode = "each"
	acksBatch ackMode = "batch"
)

// pubOptions are the flags of pub.
type pubOptions struct {
	stream   string
	key      string
	keyed    bool
	count    int
	batch    int
	acks     ackMode
	messages []string
}

func (a *app) pubCommand() *cobra.Command {
	var o pubOptions
	var acks string
	cmd := &cobra.Command{
		Use:   "pub STREAM [MESSAGE...]",
		Short: "Publish the messages, or the lines of standard input",
		Long: "Pub publishes each MESSAGE as a record, or without any each line of standard input.\n\n" +
			"--acks says what it waits for: batch, the default, waits for one answer to each batch and ends with a summary;\n" +
			"each waits for the answer to a record before it sends the next, and prints it; none waits until the broker has\n" +
			"read everything, and is told of no refusal.",
		Example:           "  felix pub orders hello\n  felix pub orders --key customer-1 --batch 64 < orders.jsonl",
		Args:              withArgs(1, -1, "a stream and messages"),
		Annotations:       map[string]string{outputs: "table json"},
		ValidArgsFunction: a.completeStream,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.stream, o.messages = args[0], args[1:]
			o.keyed = cmd.Flags().Changed("key")
			o.acks = ackMode(acks)
			switch {
			case o.acks != acksNone && o.acks != acksEach && o.acks != acksBatch:
				return usage(cmd, fmt.Sprintf("acks %q is none of none, each, batch", acks))
			case o.batch < 1 || o.batch > 65536:
				return usage(cmd, fmt.Sprintf("batch is %d; give a number from 1 to 65536", o.batch))
			case o.acks == acksEach && o.batch > 1:
				return usage(cmd, fmt.Sprintf("acks each answers every record by itself, and batch is %d; leave one of them out", o.batch))
			case cmd.Flags().Changed("count") && o.count < 1:
				return usage(cmd, fmt.Sprintf("count is %d; give a number from 1", o.count))
			}
			return a.publish(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.key, "key", "", "key of the records; records with one key stay in order on one shard")
	flags.IntVar(&o.count, "count", 0, "publish the messages this many times; of standard input, this many lines")
	flags.IntVar(&o.batch, "batch", 1, "records that are sent together")
	flags.StringVar(&acks, "acks", string(acksBatch), "what to wait for: none, each or batch")
	return cmd
}

// published is what a pub has done. The order of the fields is that of --output json.
type published struct {
	Stream      string  `json:"stream"`
	Acks        ackMode `json:"acks"`
	Records     int     `json:"records"`
	Bytes       int64   `json:"bytes"`
	Shard       *uint32 `json:"shard,omitempty"`        // absent without acks
	FirstOffset *uint64 `json:"first_offset,omitempty"` // of the first record; absent where the broker gives none
	LastOffset  *uint64 `json:"last_offset,omitempty"`  // of the last one; others may have published in between
}

// answer takes up the answer to a batch of n records.
func (p *published) answer(ack client.Ack, n int) {
	p.Records += n
	p.Shard = &ack.Shard
	if !ack.HasOffset {
		return
	}
	first, last := uint64(ack.Offset), uint64(ack.Offset)+uint64(n)-1
	if p.FirstOffset == nil {
		p.FirstOffset = &first
	}
	p.LastOffset = &last
}

// pending is a batch that was sent.
type pending struct {
	future  *client.Future
	records int
	bytes   int64
}

// publish sends every record and reports.
func (a *app) publish(ctx context.Context, o pubOptions) (err error) {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() != nil {
			c.Close()
			return
		}
		if closeErr := c.Shutdown(ctx); err == nil {
			err = closeErr
		}
	}()
	var options []client.PublishOption
	if o.keyed {
		options = append(options, client.Key(o.key))
	}
	if o.acks == acksNone {
		options = append(options, client.NoAck())
	}
	p, err := c.Publisher(o.stream, options...)
	if err != nil {
		return err
	}

	done := published{Stream: o.stream, Acks: o.acks}
	var sent []pending // oldest first, at most inFlight
	settle := func() error {
		ack, err := sent[0].future.Wait(ctx)
		if err != nil {
			return partly(&done, err)
		}
		if o.acks != acksNone {
			done.answer(ack, sent[0].records)
		} else {
			done.Records += sent[0].records
		}
		done.Bytes += sent[0].bytes
		sent = sent[1:]
		if o.acks == acksEach {
			return a.printAck(ack)
		}
		return nil
	}
	send := func(batch [][]byte) error {
		unit := pending{records: len(batch)}
		for _, record := range batch {
			unit.bytes += int64(len(record))
		}
		if len(batch) == 1 {
			unit.future = p.PublishAsync(ctx, batch[0])
		} else {
			unit.future = p.PublishBatchAsync(ctx, batch)
		}
		sent = append(sent, unit)
		if o.acks == acksEach || len(sent) == inFlight {
			return settle()
		}
		return nil
	}
	if err := a.eachBatch(ctx, o, send); err != nil {
		return err
	}
	for len(sent) > 0 {
		if err := settle(); err != nil {
			return err
		}
	}
	if err := p.Close(ctx); err != nil {
		return err
	}
	return a.printPublished(done)
}

// partly adds to a refusal what had been published before it.
func partly(done *published, err error) error {
	p := explainClient(err)
	if p == nil || done.Records == 0 {
		return err
	}
	p.what = fmt.Sprintf("%s after %s", p.what, count(done.Records, "record"))
	return p
}

// printAck tells of one record. Some brokers answer without an offset.
func (a *app) printAck(ack client.Ack) error {
	if a.output == "json" {
		answer := struct {
			Shard  uint32         `json:"shard"`
			Offset *client.Offset `json:"offset,omitempty"`
		}{Shard: ack.Shard}
		if ack.HasOffset {
			answer.Offset = &ack.Offset
		}
		return a.printJSON(answer)
	}
	offset := ""
	if ack.HasOffset {
		offset = fmt.Sprintf(" offset %d", ack.Offset)
	}
	_, err := fmt.Fprintf(a.stdout, "shard %d%s\n", ack.Shard, offset)
	return err
}

// printPublished tells what was done.
func (a *app) printPublished(p published) error {
	if p.Acks == acksEach {
		return nil // every answer has its line
	}
	if a.output == "json" {
		return a.printJSON(p)
	}
	where := ""
	switch {
	case p.Acks == acksNone:
		where = ", without acks"
	case p.Shard != nil:
		where = fmt.Sprintf(", shard %d", *p.Shard)
	}
	if p.FirstOffset != nil {
		where += fmt.Sprintf(", offset %d", *p.FirstOffset)
		if *p.LastOffset != *p.FirstOffset {
			where += fmt.Sprintf(" to %d", *p.LastOffset)
		}
	}
	_, err := fmt.Fprintf(a.stdout, "published %s (%s) to %s%s\n", count(p.Records, "record"), bytesText(p.Bytes), p.Stream, where)
	return err
}

// eachBatch calls send with batches of the records to publish. Records of the last batch are valid until it returns.
func (a *app) eachBatch(ctx context.Context, o pubOptions, send func([][]byte) error) error {
	var batch [][]byte
	add := func(record []byte) error {
		batch = append(batch, record)
		if len(batch) < o.batch {
			return nil
		}
		full := batch
		batch = nil
		return send(full)
	}
	rest := func() error {
		if len(batch) == 0 {
			return nil
		}
		return send(batch)
	}
	if len(o.messages) > 0 {
		for range max(o.count, 1) {
			for _, message := range o.messages {
				if err := add([]byte(message)); err != nil {
					return err
				}
			}
		}
		return rest()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the reader, when count is reached before its end
	lines := readLines(ctx, a.stdin)
	for n := 0; o.count == 0 || n < o.count; n++ {
		var l line
		var more bool
		select {
		case l, more = <-lines:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case !more:
			return rest()
		case errors.Is(l.err, bufio.ErrTooLong):
			return &problem{
				exitFailure, fmt.Sprintf("line %d of standard input was not published", n+1),
				fmt.Sprintf("it is longer than %s, which is what fits into a frame", bytesText(maxRecord)),
				"the same command with shorter lines",
			}
		case l.err != nil:
			return &problem{exitFailure, "standard input cannot be read", deepest(l.err).Error(), "the same command with its input from a file that can be read"}
		}
		if err := add(l.text); err != nil {
			return err
		}
	}
	return rest()
}

// line is a line of standard input, or why there is none.
type line struct {
	text []byte
	err  error
}

// readLines reads lines in a goroutine, since a read cannot be cut short. It ends with the input, or with ctx at the next line.
func readLines(ctx context.Context, r io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 64<<10), maxRecord)
		for scanner.Scan() {
			select {
			case lines <- line{text: append([]byte(nil), scanner.Bytes()...)}:
			case <-ctx.Done():
				return
			}
		}
		if err := scanner.Err(); err != nil {
			select {
			case lines <- line{err: err}:
			case <-ctx.Done():
			}
		}
	}()
	return lines
}
