package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"felix"
	"felix/client"
)

// startBroker stands for a broker that runs somewhere.
func startBroker() *felix.Broker {
	b, err := felix.Start(context.Background(), felix.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return b
}

func Example() {
	broker := startBroker()
	defer broker.Close()
	ctx := context.Background()

	c, err := client.Dial(ctx, broker.Addr().String(), client.WithCAFile(broker.CAFile()))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ack, err := c.Publish(ctx, "orders", []byte("two coffees"), client.Key("table-7"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored at offset", ack.Offset)

	sub, err := c.Subscribe(ctx, "orders", client.FromEarliest())
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	for m, err := range sub.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", m.Offset, m.Data)
		break
	}
	// Output:
	// stored at offset 0
	// 0: two coffees
}

// Many publishes under way at once; the answers are collected afterwards.
func ExamplePublisher() {
	broker := startBroker()
	defer broker.Close()
	ctx := context.Background()
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithCAFile(broker.CAFile()))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p, err := c.Publisher("orders", client.Idempotent())
	if err != nil {
		log.Fatal(err)
	}
	var futures []*client.Future
	for i := range 1000 {
		futures = append(futures, p.PublishAsync(ctx, fmt.Appendf(nil, "order %d", i)))
	}
	for _, f := range futures {
		if _, err := f.Wait(ctx); err != nil {
			log.Fatal(err)
		}
	}
	ack, _ := futures[999].Wait(ctx)
	fmt.Println("the last one is at offset", ack.Offset)
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: the last one is at offset 999
}

// Records that may be lost need no answer. Flush waits until the broker has read them.
func ExampleNoAck() {
	broker := startBroker()
	defer broker.Close()
	ctx := context.Background()
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithCAFile(broker.CAFile()))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p, err := c.Publisher("clicks", client.NoAck())
	if err != nil {
		log.Fatal(err)
	}
	for range 100 {
		if _, err := p.Publish(ctx, []byte("click")); err != nil {
			log.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	ack, err := c.Publish(ctx, "clicks", []byte("last"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ack.Offset)
	// Output: 100
}

// A subscription that missed records says which, and goes on.
func ExampleGapError() {
	broker := startBroker()
	defer broker.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithCAFile(broker.CAFile()))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Publish(ctx, "orders", []byte("hello")); err != nil {
		log.Fatal(err)
	}

	sub, err := c.Subscribe(ctx, "orders", client.FromEarliest())
	if err != nil {
		log.Fatal(err)
	}
	for m, err := range sub.All(ctx) {
		var gap *client.GapError
		switch {
		case errors.As(err, &gap):
			fmt.Printf("shard %d: missed %d to %d\n", gap.Shard, gap.From, gap.To-1)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Printf("%s\n", m.Data)
			cancel() // ends the loop
		}
	}
	// Output: hello
}

func ExampleError() {
	broker := startBroker()
	defer broker.Close()
	ctx := context.Background()
	c, err := client.Dial(ctx, broker.Addr().String(), client.WithCAFile(broker.CAFile()))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = c.Publish(ctx, "orders", make([]byte, 20<<20))
	var e *client.Error
	if errors.As(err, &e) && errors.Is(err, client.ErrInvalid) {
		fmt.Println(e.Code, "-", e.Retry)
	}
	// Output: invalid_request - fatal
}
