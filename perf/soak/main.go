package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

// A command is one kind of load.
type command struct {
	name, rule string
	// prepare declares the flags and returns what runs once they are read.
	prepare func(flags *flag.FlagSet) func(ctx context.Context, r *report) error
}

var commands = [...]command{
	{"joins", "history to live under full-rate publish is contiguous, without a duplicate", prepareJoins},
	{"slow", "subscribers that do not read cost the others nothing, and miss nothing or exactly what they are told", prepareSlow},
	{"stall", "what healthy subscribers and the publisher see does not change when others stop reading", prepareStall},
	{"fanout", "every subscriber of a shard gets every record, and each frame is encoded once", prepareFanout},
	{"churn", "after clients that vanish every count is back where it was", prepareChurn},
	{"mutate", "frames that make no sense cost the broker nothing that lasts", prepareMutate},
	{"floods", "handshakes that nobody ends, or that lead nowhere, leave existing clients half their throughput", prepareFloods},
	{"tenants", "a tenant with one publisher sees little of one with all the others", prepareTenants},
	{"overload", "ten times the publishers leave books, memory and throughput as they are", prepareOverload},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "soak:", err)
		}
		stop()
		os.Exit(1)
	}
}

// run runs the subcommand that args name.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		for _, c := range commands {
			if c.name != args[0] {
				continue
			}
			flags := flag.NewFlagSet("soak "+c.name, flag.ContinueOnError)
			flags.SetOutput(out)
			timeout := flags.Duration("timeout", time.Hour, "give up after it")
			load := c.prepare(flags)
			if err := flags.Parse(args[1:]); err != nil {
				return err
			}
			if flags.NArg() > 0 {
				return fmt.Errorf("%s takes no argument %q; soak %s -h lists its flags", c.name, flags.Arg(0), c.name)
			}
			ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("it did not end within %v", *timeout))
			defer cancel()
			err := load(ctx, &report{out: out})
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			_, err = fmt.Fprintf(out, "%s: ok: %s\n", c.name, c.rule)
			return err
		}
	}
	for _, c := range commands {
		fmt.Fprintf(out, "soak %-9s %s\n", c.name, c.rule)
	}
	return errors.New("name one of these; -h behind it lists its flags")
}

// A report takes the figures.
type report struct{ out io.Writer }

func (r *report) say(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }
