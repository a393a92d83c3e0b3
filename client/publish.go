package client

import (
	"context"
	"unsafe"

	"felix/netio/wire"
)

// A PublishOption says how records are published. Options of a Publisher hold for all its publishes; those of a call come on top.
type PublishOption struct {
	kind      optionKind
	text      string
	shard     uint32
	publisher bool // makes sense for a publisher as a whole only
}

type optionKind uint8

const (
	optionKey optionKind = iota + 1
	optionNoAck
	optionShard
	optionNamespace
	optionAtLeastOnce
	optionIdempotent
)

// Key routes the records by a key of at most 65,535 bytes: records with one key go to one shard and stay in order. An empty key is a key;
// records without one go to shard 0. A key given as bytes must not change until the call returns.
func Key[K ~string | ~[]byte](key K) PublishOption {
	o := PublishOption{kind: optionKey}
	switch k := any(key).(type) {
	case string:
		o.text = k
	case []byte:
		o.text = unsafe.String(unsafe.SliceData(k), len(k))
	default:
		o.text = string(key)
	}
	return o
}

// ToShard names the shard, whatever the key. It needs a broker that serves EXPLICIT_SHARD, and travels as JSON, which is slower.
func ToShard(shard uint32) PublishOption { return PublishOption{kind: optionShard, shard: shard} }

// NoAck asks for no answer: the publish ends as soon as it is queued for sending, and nobody is told when the broker refuses it. It is for
// records that may be lost. A full broker slows the publisher down through flow control. Flush waits until the broker has read them.
func NoAck() PublishOption { return PublishOption{kind: optionNoAck} }

// InNamespace names the namespace of the stream, instead of the client's.
func InNamespace(namespace string) PublishOption {
	return PublishOption{kind: optionNamespace, text: namespace}
}

// AtLeastOnce sends a publish again when its outcome is unknown, for as long as the reconnect policy says: the records are then stored
// once or several times, and may land after later ones. Without it such a publish fails with ErrOutcomeUnknown.
func AtLeastOnce() PublishOption { return PublishOption{kind: optionAtLeastOnce} }

// Idempotent, an option of Client.Publisher only, numbers the batches of the publisher, so that the broker stores each once and in order
// however often it is sent. Publishes whose outcome is unknown are sent again for as long as the reconnect policy says. A refusal that
// breaks the order ends the publisher with a *ProducerError.
func Idempotent() PublishOption { return PublishOption{kind: optionIdempotent, publisher: true} }

// publishOptions is what options amount to.
type publishOptions struct {
	key         string
	keyed       bool
	noAck       bool
	shard       uint32
	explicit    bool
	namespace   string
	atLeastOnce bool
	idempotent  bool
}

// apply adds options; those of a call when call is true.
func (o *publishOptions) apply(stream string, opts []PublishOption, call bool) *Error {
	for i := range opts {
		switch p := &opts[i]; p.kind {
		case optionKey:
			if len(p.text) > wire.MaxKeyBytes {
				return invalidf("publish", stream, "key of %d bytes, at most %d fit", len(p.text), wire.MaxKeyBytes)
			}
			o.key, o.keyed = p.text, true
		case optionNoAck:
			o.noAck = true
		case optionShard:
			o.shard, o.explicit = p.shard, true
		case optionNamespace:
			if err := checkName("namespace", p.text); err != nil {
				return invalidf("publish", stream, "%v", err)
			}
			o.namespace = p.text
		case optionAtLeastOnce:
			o.atLeastOnce = true
		case optionIdempotent:
			if call {
				return invalidf("publish", stream, "idempotent publishing needs a publisher of its own: give Idempotent to Client.Publisher")
			}
			o.idempotent = true
		default:
			return invalidf("publish", stream, "option made without its function")
		}
	}
	switch {
	case o.noAck && (o.atLeastOnce || o.idempotent):
		return invalidf("publish", stream, "NoAck together with AtLeastOnce or Idempotent: without an answer nobody knows what to send again")
	case o.idempotent && o.explicit:
		return invalidf("publish", stream, "Idempotent together with ToShard; give a key instead")
	}
	return nil
}

// Publish publishes one record and waits for the answer, which comes at the level that the stream promises. data is copied before Publish
// returns. A refusal that applied nothing is retried as the reconnect policy says, a lost connection before anything was sent likewise;
// when the outcome is unknown the error is ErrOutcomeUnknown, unless AtLeastOnce is given. A context that ends while the answer is out
// gives ErrOutcomeUnknown together with the context's error.
func (c *Client) Publish(ctx context.Context, stream string, data []byte, opts ...PublishOption) (Ack, error) {
	m := message{data: data, single: true}
	return c.publish(ctx, stream, &m, opts)
}

// PublishBatch publishes records together: to one shard, one after the other, with one answer. They must fit into a frame of 16 MiB. It is
// otherwise as Publish. An empty batch is refused.
func (c *Client) PublishBatch(ctx context.Context, stream string, batch [][]byte, opts ...PublishOption) (Ack, error) {
	m := message{batch: batch}
	return c.publish(ctx, stream, &m, opts)
}

func (c *Client) publish(ctx context.Context, stream string, m *message, opts []PublishOption) (Ack, error) {
	o := publishOptions{namespace: c.config.namespace}
	if err := o.apply(stream, opts, true); err != nil {
		return Ack{}, err
	}
	if err := checkName("stream", stream); err != nil {
		return Ack{}, invalidf("publish", stream, "%v", err)
	}
	m.topic = c.topicFor(o.namespace, stream)
	return c.publishNow(ctx, m, &o, nil, nil)
}

// publishNow publishes with a recycled future and waits for its end. p and e are the publisher and its epoch, if there is one.
func (c *Client) publishNow(ctx context.Context, m *message, o *publishOptions, p *Publisher, e *epoch) (Ack, error) {
	f := c.futures.Get().(*Future)
	f.reset(m.topic, o.atLeastOnce)
	f.epoch = e
	err := c.submit(ctx, m, o, f, p)
	if err != nil || o.noAck {
		ack := Ack{Shard: f.ack.Shard}
		c.futures.Put(f)
		if e != nil {
			e.release()
		}
		if err != nil {
			return Ack{}, err
		}
		return ack, nil
	}
	select {
	case <-f.wake:
		ack, err := f.result()
		c.futures.Put(f)
		return ack, err
	case <-ctx.Done():
		f.abandoned.Store(true) // it stays with whoever holds it, and is not used again
		return Ack{}, lost("publish", m.topic.scope.Stream, context.Cause(ctx))
	}
}

// submit sends one publish, or says that nothing was sent.
func (c *Client) submit(ctx context.Context, m *message, o *publishOptions, f *Future, p *Publisher) error {
	stream := m.topic.scope.Stream
	if c.refusing.Load() {
		return closedError("publish", stream)
	}
	if !m.single && len(m.batch) == 0 {
		return invalidf("publish", stream, "the batch is empty")
	}
	if ctx.Err() != nil {
		return contextError("publish", stream, ctx)
	}
	m.key, m.keyed, m.shard, m.explicit, m.acked = o.key, o.keyed, o.shard, o.explicit, !o.noAck
	if p != nil && p.producer != nil {
		return p.producer.submit(ctx, m, f)
	}
	err := c.route(ctx, m, f, false)
	if err == nil && o.noAck && p != nil {
		p.sentPlain(f.via)
	}
	return err
}

// reset makes a recycled future new.
func (f *Future) reset(t *topic, atLeastOnce bool) {
	f.ack, f.err, f.topic, f.atLeastOnce = Ack{}, nil, t, atLeastOnce
	f.epoch, f.tries, f.firstFailed, f.lane, f.via = nil, 0, 0, nil, nil
}

// succeed ends the publish; its ack is set.
func (f *Future) succeed() {
	if f.lane != nil {
		f.lane.answered()
	}
	f.end(nil)
}

// fail ends the publish with an error under its own name.
func (f *Future) fail(err error) {
	if e, ok := err.(*Error); ok {
		err = e.withOp("publish", f.topic.scope.Stream)
	}
	f.end(err)
}
