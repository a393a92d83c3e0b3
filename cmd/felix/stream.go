package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// onSlow are the words of --on-slow and what the catalog calls them.
var onSlow = [...]struct{ flag, catalog string }{
	{"catch-up", "catch_up"}, {"drop", "drop_new"}, {"drop-oldest", "drop_old"}, {"block", "block"},
}

func onSlowFlag(catalog string) string {
	for _, o := range onSlow {
		if o.catalog == catalog {
			return o.flag
		}
	}
	return catalog
}

func (a *app) streamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "Create, list, look at, change and remove streams",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.streamCreateCommand(), a.streamListCommand(), a.streamInfoCommand(), a.streamSetCommand(), a.streamRemoveCommand())
	return cmd
}

func (a *app) streamCreateCommand() *cobra.Command {
	var shards uint32
	var memory, durable bool
	var slow, fsync, routing string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a stream",
		Long: "Create makes a stream whose records are kept on disk, or with --memory in the broker's memory.\n\n" +
			"On disk --fsync says what an ack means: on_commit the record is on disk and survives a power cut; periodic it is written and\n" +
			"synced 250 ms later, which a power cut can cost; none it is written, and the system saves it when it likes. All of them\n" +
			"survive the end of the broker's process.",
		Example:     "  felix stream create orders --shards 8\n  felix stream create prices --shards 8 --memory --on-slow drop-oldest",
		Args:        withArgs(1, 1, "the name of a stream"),
		Annotations: map[string]string{outputs: "table json"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if memory && durable {
				return usage(cmd, "a stream is kept in memory or on disk; leave --memory or --durable out")
			}
			body := map[string]any{"stream": args[0], "shards": shards, "durable": !memory}
			if slow != "" {
				word, err := onSlowWord(cmd, slow)
				if err != nil {
					return err
				}
				if word == "catch_up" && memory {
					return usage(cmd, "a stream in memory has no log to catch up from; on-slow is one of drop, drop-oldest, block")
				}
				body["on_slow"] = word
			}
			if fsync != "" {
				if memory {
					return usage(cmd, "a stream in memory syncs nothing; leave --fsync or --memory out")
				}
				if err := checkFsync(cmd, fsync); err != nil {
					return err
				}
				body["fsync_mode"] = fsync
			}
			if routing != "" {
				if routing != "modulo" && routing != "jump_hash" {
					return usage(cmd, fmt.Sprintf("routing %q is none of modulo, jump_hash", routing))
				}
				body["routing"] = routing
			}
			c, err := a.adminClient(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return a.createStream(cmd.Context(), c, args[0], body)
		},
	}
	flags := cmd.Flags()
	flags.Uint32Var(&shards, "shards", 1, "number of shards, fixed for life")
	flags.BoolVar(&durable, "durable", false, "keep records on disk (default)")
	flags.BoolVar(&memory, "memory", false, "keep records in memory; they are gone with the process")
	flags.StringVar(&fsync, "fsync", "", "what an ack waits for: on_commit, periodic or none (default the broker's fsync_mode)")
	flags.StringVar(&slow, "on-slow", "", "a subscriber's queue is full: catch-up, drop, drop-oldest or block (default catch-up, in memory drop)")
	flags.StringVar(&routing, "routing", "", "how keys find shards: modulo or jump_hash (default modulo)")
	return cmd
}

// onSlowWord is what the catalog calls a word of --on-slow.
func onSlowWord(cmd *cobra.Command, flag string) (string, error) {
	for _, o := range onSlow {
		if o.flag == flag {
			return o.catalog, nil
		}
	}
	return "", usage(cmd, fmt.Sprintf("on-slow %q is none of catch-up, drop, drop-oldest, block", flag))
}

func checkFsync(cmd *cobra.Command, mode string) error {
	if mode != "on_commit" && mode != "periodic" && mode != "none" {
		return usage(cmd, fmt.Sprintf("fsync %q is none of on_commit, periodic, none", mode))
	}
	return nil
}

// createStream creates a stream, and its namespace when that is missing: it then says so.
func (a *app) createStream(ctx context.Context, c *adminClient, name string, body map[string]any) error {
	var made stream
	status, err := c.do(ctx, http.MethodPost, a.streams(), body, &made)
	if status == http.StatusNotFound {
		if _, err := c.do(ctx, http.MethodPost, "/v1/tenants", map[string]string{"tenant_id": a.tenant}, nil); err != nil {
			return explainRefusal(err, fmt.Sprintf("tenant %q was not created", a.tenant), name)
		}
		if _, err := c.do(ctx, http.MethodPost, a.namespaces(), map[string]string{"namespace": a.namespace}, nil); err != nil {
			return explainRefusal(err, fmt.Sprintf("namespace %q was not created", a.namespace), name)
		}
		fmt.Fprintf(a.stderr, "felix: created namespace %s of tenant %s\n", a.namespace, a.tenant)
		status, err = c.do(ctx, http.MethodPost, a.streams(), body, &made)
	}
	if err != nil {
		return explainRefusal(err, fmt.Sprintf("stream %q was not created", name), name)
	}
	if a.output == "json" {
		return a.printJSON(made)
	}
	text := "created stream %s (%s, %s, on slow subscribers: %s)\n"
	if status == http.StatusOK {
		text = "stream %s exists already (%s, %s, on slow subscribers: %s)\n"
	}
	_, err = fmt.Fprintf(a.stdout, text, made.Stream, count(int(made.Shards), "shard"), storageText(made), onSlowFlag(made.OnSlow))
	return err
}

func (a *app) streamListCommand() *cobra.Command {
	var noHeaders bool
	cmd := &cobra.Command{
		Use:         "ls",
		Short:       "List the streams of the namespace",
		Args:        withArgs(0, 0, "no arguments"),
		Annotations: map[string]string{outputs: "table json"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.adminClient(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			all, err := a.listStreams(cmd.Context(), c)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(all)
			}
			if len(all) == 0 {
				_, err := fmt.Fprintf(a.stderr, "No streams in namespace %s of tenant %s. Create one: felix stream create NAME --shards 8\n", a.namespace, a.tenant)
				return err
			}
			head := []string{"STREAM", "SHARDS", "STORAGE", "FSYNC", "ON SLOW", "ROUTING", "RETENTION"}
			if noHeaders {
				head = nil
			}
			var rows [][]string
			for _, s := range all {
				rows = append(rows, []string{s.Stream, strconv.Itoa(int(s.Shards)), storage(s), fsyncText(s), onSlowFlag(s.OnSlow), routingText(s), retentionText(s)})
			}
			return printTable(a.stdout, head, rows)
		},
	}
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "leave the heading out")
	return cmd
}

func (a *app) streamInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "info NAME",
		Short:             "Show a stream",
		Args:              withArgs(1, 1, "the name of a stream"),
		Annotations:       map[string]string{outputs: "table json"},
		ValidArgsFunction: a.completeStream,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.adminClient(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			s, err := a.getStream(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(s)
			}
			return printTable(a.stdout, nil, [][]string{
				{"stream", s.Stream},
				{"namespace", a.namespace},
				{"tenant", a.tenant},
				{"shards", strconv.Itoa(int(s.Shards))},
				{"storage", storage(s)},
				{"fsync", fsyncText(s)},
				{"on slow", onSlowFlag(s.OnSlow)},
				{"routing", routingText(s)},
				{"retention", retentionText(s)},
				{"kind", s.Kind},
				{"consistency", s.Consistency},
				{"delivery", s.Delivery},
			})
		},
	}
}

// getStream reads one stream.
func (a *app) getStream(ctx context.Context, c *adminClient, name string) (s stream, err error) {
	if _, err := c.do(ctx, http.MethodGet, a.streams(name), nil, &s); err != nil {
		return s, explainRefusal(err, fmt.Sprintf("stream %q was not found", name), name)
	}
	return s, nil
}

func (a *app) streamSetCommand() *cobra.Command {
	var slow, fsync, size string
	var seconds uint64
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change what a stream promises and keeps",
		Long: "Set changes a stream. --fsync holds for records from now on, --on-slow for subscriptions from now on, and retention at once: records\n" +
			"beyond it are let go of for good.",
		Example:           "  felix stream set orders --retention-bytes 10GiB --retention-secs 604800\n  felix stream set orders --fsync periodic",
		Args:              withArgs(1, 1, "the name of a stream"),
		Annotations:       map[string]string{outputs: "table json"},
		ValidArgsFunction: a.completeStream,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if slow != "" {
				word, err := onSlowWord(cmd, slow)
				if err != nil {
					return err
				}
				body["on_slow"] = word
			}
			if fsync != "" {
				if err := checkFsync(cmd, fsync); err != nil {
					return err
				}
				body["fsync_mode"] = fsync
			}
			byBytes, bySeconds := cmd.Flags().Changed("retention-bytes"), cmd.Flags().Changed("retention-secs")
			var bytes uint64
			if byBytes {
				var err error
				if bytes, err = humanize.ParseBytes(size); err != nil {
					return usage(cmd, fmt.Sprintf("retention-bytes %q is no size; give one such as 1073741824 or 1GiB", size))
				}
			}
			if len(body) == 0 && !byBytes && !bySeconds {
				return usage(cmd, "nothing is to be changed; give --fsync, --on-slow, --retention-bytes or --retention-secs")
			}
			c, err := a.adminClient(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			if byBytes || bySeconds {
				// The two bounds are one value over there: the one that is not named stays.
				s, err := a.getStream(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				keep := retention{}
				if s.Retention != nil {
					keep = *s.Retention
				}
				if byBytes {
					keep.MaxSizeBytes = bytes
				}
				if bySeconds {
					keep.MaxAgeSeconds = seconds
				}
				body["retention"] = keep
			}
			var changed stream
			if _, err := c.do(cmd.Context(), http.MethodPatch, a.streams(args[0]), body, &changed); err != nil {
				err = explainRefusal(err, fmt.Sprintf("stream %q was not changed", args[0]), args[0])
				if p := (*problem)(nil); errors.As(err, &p) && p.code == exitUsage {
					p.next = "felix stream info " + args[0]
				}
				return err
			}
			if a.output == "json" {
				return a.printJSON(changed)
			}
			_, err = fmt.Fprintf(a.stdout, "changed stream %s (%s, %s, on slow subscribers: %s, retention: %s)\n",
				changed.Stream, count(int(changed.Shards), "shard"), storageText(changed), onSlowFlag(changed.OnSlow), retentionText(changed))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&fsync, "fsync", "", "what an ack waits for: on_commit, periodic or none")
	flags.StringVar(&slow, "on-slow", "", "a subscriber's queue is full: catch-up, drop, drop-oldest or block")
	flags.StringVar(&size, "retention-bytes", "", "size that each shard keeps, such as 10GiB; 0 = as the broker")
	flags.Uint64Var(&seconds, "retention-secs", 0, "age of the records that are kept; 0 = as the broker")
	return cmd
}

func (a *app) streamRemoveCommand() *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:               "rm NAME",
		Short:             "Remove a stream with its records",
		Args:              withArgs(1, 1, "the name of a stream"),
		Annotations:       map[string]string{outputs: "table json"},
		ValidArgsFunction: a.completeStream,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.adminClient(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			name := args[0]
			if dryRun {
				s, err := a.getStream(cmd.Context(), c, name)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.stdout, "would remove stream %s (%s, %s) with its records\n", name, count(int(s.Shards), "shard"), storage(s))
				return err
			}
			if !yes {
				if err := a.confirm(cmd, name); err != nil {
					return err
				}
			}
			if _, err := c.do(cmd.Context(), http.MethodDelete, a.streams(name), nil, nil); err != nil {
				return explainRefusal(err, fmt.Sprintf("stream %q was not removed", name), name)
			}
			if a.output == "json" {
				return a.printJSON(struct {
					Removed string `json:"removed"`
				}{name})
			}
			_, err = fmt.Fprintf(a.stdout, "removed stream %s\n", name)
			return err
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be removed")
	return cmd
}

// confirm has a person type the name of what is to be removed. Where nobody can, --yes is needed.
func (a *app) confirm(cmd *cobra.Command, name string) error {
	if !isTerminal(a.stdin) {
		p := usage(cmd, fmt.Sprintf("removing stream %q removes its records, and standard input is no terminal to ask on", name))
		p.next = fmt.Sprintf("%s %s --yes", cmd.CommandPath(), name)
		return p
	}
	fmt.Fprintf(a.stderr, "This removes stream %s with its records. Type its name to go on: ", name)
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if strings.TrimSpace(answer) == name {
		return nil
	}
	if cmd.Context().Err() != nil {
		return cmd.Context().Err()
	}
	p := &problem{exitFailure, "nothing was removed", fmt.Sprintf("%q was typed, not %q", strings.TrimSpace(answer), name), "the same command again"}
	if err != nil {
		p.why = "no name was typed"
	}
	return p
}

// isTerminal reports whether a reader is a terminal.
func isTerminal(r any) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// completeStream lists names for the shell. It keeps still about every failure.
func (a *app) completeStream(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 || cmd.Root().PersistentPreRunE(cmd, nil) != nil {
		return nil, nothing
	}
	c, err := a.adminClient(cmd)
	if err != nil {
		return nil, nothing
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	all, err := a.listStreams(ctx, c)
	if err != nil {
		return nil, nothing
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Stream)
	}
	return names, nothing
}

func storage(s stream) string {
	if s.Durable {
		return "disk"
	}
	return "memory"
}

// storageText is storage with what an ack means.
func storageText(s stream) string {
	if s.Durable {
		return "disk, fsync " + s.FsyncMode
	}
	return "memory"
}

func fsyncText(s stream) string {
	if s.FsyncMode == "" {
		return "-"
	}
	return s.FsyncMode
}

func routingText(s stream) string {
	if s.Routing == "" {
		return "modulo"
	}
	return s.Routing
}

func retentionText(s stream) string {
	if s.Retention == nil {
		return "as the broker"
	}
	var parts []string
	if n := s.Retention.MaxAgeSeconds; n > 0 {
		parts = append(parts, (time.Duration(n) * time.Second).String())
	}
	if n := s.Retention.MaxSizeBytes; n > 0 {
		parts = append(parts, humanize.IBytes(n))
	}
	return strings.Join(parts, ", ")
}
