package clienttest_test

import (
	"testing"

	"go.uber.org/goleak"

	"felix"
	"felix/client"
	"felix/client/clienttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	b := clienttest.Run(t, func(c *felix.Config) { c.Cores = 2 })
	b.Stream("orders", 4)
	c := b.Client(client.WithConnections(1))
	if n, err := c.StreamShards(t.Context(), "orders"); n != 4 || err != nil {
		t.Fatalf("%d shards, %v", n, err)
	}
	other := clienttest.Run(t).Client()
	if _, err := other.Publish(t.Context(), "orders", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	sub, err := c.Subscribe(t.Context(), "orders", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	ack, err := c.Publish(t.Context(), "orders", []byte("here"), client.Key("k1"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := sub.Next(t.Context())
	if err != nil || string(m.Data) != "here" || m.Shard != ack.Shard || m.Offset != 0 {
		t.Fatalf("%+v, %v", m, err)
	}
}
