package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"felix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		stop()
		os.Exit(1)
	}
}

// options are the flags that a broker is started with.
type options struct {
	listen, admin, data, ready string
	cores                      int
}

// run serves until ctx ends.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say bare or felix")
	}
	var o options
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error says it
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "IP:port")
	flags.StringVar(&o.admin, "admin", "127.0.0.1:0", "IP:port of metrics and profiles")
	flags.StringVar(&o.data, "data", "", "directory")
	flags.StringVar(&o.ready, "ready-file", "", "file that says how to connect")
	flags.IntVar(&o.cores, "cores", 1, "cores of felix")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case o.data == "" || o.ready == "":
		return errors.New("data and ready-file are needed")
	case args[0] == "bare":
		return bare(ctx, o)
	case args[0] == "felix":
		return broker(ctx, o)
	}
	return fmt.Errorf("%q is neither bare nor felix", args[0])
}

// broker serves as felixd does, with cores that are not pinned.
func broker(ctx context.Context, o options) error {
	settled, err := felix.LoadSettings(felix.SettingsInput{
		Flags: map[string]string{"listen": o.listen, "admin": o.admin, "data": o.data}, Environ: os.Environ(),
	})
	if err != nil {
		return err
	}
	config := settled.Config
	config.Cores, config.Listeners = o.cores, o.cores
	b, err := felix.Start(ctx, config)
	if err != nil {
		return err
	}
	if err := b.Ready().WriteFile(o.ready); err != nil {
		return errors.Join(err, b.Close())
	}
	<-ctx.Done()
	return errors.Join(b.Drain(context.Background()), b.Close())
}
