// Package clienttest starts a real broker inside a test.
//
// Run gives a test a broker of its own: on a free port of 127.0.0.1, with a certificate of its own, its files in a temporary directory,
// nothing shared with another test. Broker.Client connects to it. Both end with the test, the clients first.
//
//	func TestOrders(t *testing.T) {
//		c := clienttest.Run(t).Client()
//		_, err := c.Publish(t.Context(), "orders", []byte("hello"))
//		...
//	}
//
// Streams are made by their first use, with one shard, as on a development broker; Broker.Stream and CreateStream make others. The broker
// runs in the process of the test: its goroutines are gone when the test has ended, so that leak checks work.
package clienttest

import (
	"context"
	"testing"
	"time"

	"felix"
	"felix/client"
)

// A Broker is a running broker that ends with its test. Its methods may be called from any goroutine, Client from the test's.
type Broker struct {
	*felix.Broker
	t testing.TB
}

// startTimeout bounds the start of the broker and of each client.
const startTimeout = 30 * time.Second

// Run starts a broker for the test. Each function of configure may change its configuration, whose zero value listens on a free loopback
// port. A broker that does not start, or does not close at the end, fails the test.
func Run(t testing.TB, configure ...func(*felix.Config)) *Broker {
	t.Helper()
	var config felix.Config
	for _, f := range configure {
		f(&config)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	b, err := felix.Start(ctx, config)
	if err != nil {
		t.Fatalf("start a broker: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close the broker: %v", err)
		}
	})
	return &Broker{Broker: b, t: t}
}

// Client connects a client to the broker. It trusts the broker's certificate, takes further options, and is closed with the test.
func (b *Broker) Client(opts ...client.Option) *client.Client {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := client.Dial(ctx, b.Addr().String(), append([]client.Option{client.WithCAFile(b.CAFile())}, opts...)...)
	if err != nil {
		b.t.Fatalf("connect to the broker: %v", err)
	}
	b.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// Stream creates an in-memory stream in the default tenant and namespace. A subscriber whose queue is full holds publishers back, for 5 s
// at most, so that a test loses nothing.
func (b *Broker) Stream(name string, shards int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := b.CreateStream(ctx, felix.StreamConfig{
		Tenant: felix.DefaultName, Namespace: felix.DefaultName, Name: name, Shards: uint32(shards), OnSlow: felix.Block,
	})
	if err != nil {
		b.t.Fatalf("create stream %q: %v", name, err)
	}
}
