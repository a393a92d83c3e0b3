package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"felix"
	"felix/affinity"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)   // a second signal ends the process
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is an error of the write then, and not the end
	os.Exit(run(ctx, surroundings{
		args: os.Args[1:], environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		restart: affinity.RestartWithTimerSlack,
	}))
}

// surroundings is what a run of the command has around it.
type surroundings struct {
	args, environ  []string
	stdin          io.Reader
	stdout, stderr io.Writer
	restart        func(timerSlack time.Duration) error // is as affinity.RestartWithTimerSlack
}

// app is one run of the command: its surroundings and the global flags.
type app struct {
	surroundings
	server, admin, ca, tenant, namespace, token, output string
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, s surroundings) int {
	a := &app{surroundings: s}
	root := a.rootCommand()
	root.SetArgs(s.args)
	root.SetIn(s.stdin)
	root.SetOut(s.stdout)
	root.SetErr(s.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil || isClosedPipe(err) {
		return exitOK // who reads our output may stop when it has enough
	}
	p := explain(ctx, err, cmd)
	p.print(s.stderr)
	return p.code
}

// global is a flag that every command has, with its twins in the environment; the first that is set counts.
type global struct {
	name, short, help string
	env               []string
	field             *string
}

func (a *app) globals() []global {
	return []global{
		{"server", "", "broker, HOST:PORT", []string{"FELIX_SERVER", "FELIX_BROKERS"}, &a.server},
		{"admin", "", "admin listener of the broker, HOST:PORT", []string{"FELIX_ADMIN"}, &a.admin},
		{"ca", "", "PEM file with the certificates to trust", []string{"FELIX_CA_FILE"}, &a.ca},
		{"tenant", "", "tenant (default \"default\")", []string{"FELIX_AUTH_TENANT"}, &a.tenant},
		{"namespace", "n", "namespace (default \"default\")", []string{"FELIX_NAMESPACE"}, &a.namespace},
		{"token", "", "token", []string{"FELIX_AUTH_TOKEN"}, &a.token},
		{"output", "o", "output: table or json; raw or json for sub", []string{"FELIX_OUTPUT"}, &a.output},
	}
}

// rootCommand is felix with its global flags and commands.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "felix",
		Short:         "Publish to, subscribe to and look after a felix broker",
		Long:          "Felix publishes to, subscribes to and looks after a felix broker. Without --server it takes the development\nbroker that runs on this machine; felix demo needs none.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = true
	globals := a.globals()
	for _, g := range globals {
		root.PersistentFlags().StringVarP(g.field, g.name, g.short, "", g.help+" ("+g.env[0]+")")
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, g := range globals {
			if !cmd.Flags().Changed(g.name) {
				*g.field = a.lookup(g.env)
			}
		}
		// The environment may hold a list of brokers; any of them will do.
		a.server, _, _ = strings.Cut(a.server, ",")
		if a.tenant == "" {
			a.tenant = felix.DefaultName
		}
		if a.namespace == "" {
			a.namespace = felix.DefaultName
		}
		return a.chooseOutput(cmd)
	}
	root.AddCommand(a.pubCommand(), a.subCommand(), a.streamCommand(), a.subscriptionCommand(), a.walCommand(), a.demoCommand(),
		a.benchCommand(), a.benchBrokerCommand(), a.versionCommand())
	return root
}

// lookup returns the first of names that is set in the environment. A blank one counts as not set.
func (a *app) lookup(names []string) string {
	for _, name := range names {
		for _, entry := range a.environ {
			if value, ok := strings.CutPrefix(entry, name+"="); ok && strings.TrimSpace(value) != "" {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

// outputs names the annotation that lists the outputs of a command, its default first.
const outputs = "outputs"

// chooseOutput checks --output against what the command can do. An environment name serves many commands, so one that does not
// fit is left aside.
func (a *app) chooseOutput(cmd *cobra.Command) error {
	can := strings.Fields(cmd.Annotations[outputs])
	if len(can) == 0 || slices.Contains(can, a.output) {
		return nil
	}
	if cmd.Flags().Changed("output") {
		return usage(cmd, fmt.Sprintf("output %q is none of %s", a.output, strings.Join(can, ", ")))
	}
	a.output = can[0]
	return nil
}

// unknownCommand refuses arguments of a command that only has others below it, with the nearest name.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	p := usage(cmd, fmt.Sprintf("there is no command %q", args[0]))
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		p.next = cmd.CommandPath() + " " + near[0]
	}
	return p
}

// withArgs bounds the number of arguments; most < 0 means any number.
func withArgs(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usage(cmd, fmt.Sprintf("%s takes %s, and %d arguments were given", cmd.CommandPath(), names, len(args)))
		}
		return nil
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print the version",
		Args:        withArgs(0, 0, "no arguments"),
		Annotations: map[string]string{outputs: "table json"},
		RunE: func(*cobra.Command, []string) error {
			if a.output == "json" {
				return a.printJSON(struct {
					Version string `json:"version"`
				}{felix.Version()})
			}
			_, err := fmt.Fprintln(a.stdout, "felix", felix.Version())
			return err
		},
	}
}

// isClosedPipe reports whether err says that the reader of our output has gone.
func isClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
