package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"felix"
	"felix/netio/wire"
	"felix/wal"
)

// Names in a data directory. Those of segments are wal's.
const (
	lanesDir      = "lanes"
	lanePrefix    = "lane-"
	lockFile      = "LOCK"
	segmentSuffix = ".seg"
)

func (a *app) walCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wal",
		Short: "Look at the log of a data directory, without a broker",
		Long: "Wal reads the log in a data directory of felixd, or in one lane of it, and changes nothing.\n\n" +
			"Inspect and dump may be used beside a running broker; the end of the log is then on the move. Verify wants the\n" +
			"directory for itself, since what a broker is writing looks like damage.",
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.walInspectCommand(), a.walVerifyCommand(), a.walDumpCommand())
	return cmd
}

// A laneDir is the directory of one lane.
type laneDir struct {
	id   uint64 // by its name, for the order
	path string
}

// findLanes returns the lanes that dir names: all of a data directory, or one that is a lane itself.
func findLanes(dir string) ([]laneDir, error) {
	entries, err := os.ReadDir(filepath.Join(dir, lanesDir))
	root := filepath.Join(dir, lanesDir)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err = os.ReadDir(dir)
		root = dir
	}
	if err != nil {
		return nil, &problem{exitFailure, "the log cannot be read", fmt.Sprintf("%s: %v", dir, deepest(err)), "the same command with the data directory of a broker; felixd prints it when it starts"}
	}
	var lanes []laneDir
	for _, e := range entries {
		if root == dir && strings.HasSuffix(e.Name(), segmentSuffix) {
			return []laneDir{{path: dir}}, nil
		}
		digits, ok := strings.CutPrefix(e.Name(), lanePrefix)
		id, err := strconv.ParseUint(digits, 10, 32)
		if ok && err == nil && e.IsDir() {
			lanes = append(lanes, laneDir{id, filepath.Join(root, e.Name())})
		}
	}
	if len(lanes) == 0 {
		return nil, &problem{exitNotFound, "there is no log", fmt.Sprintf("%s has neither lanes nor segments", dir), "the same command with the data directory of a broker; felixd prints it when it starts"}
	}
	slices.SortFunc(lanes, func(a, b laneDir) int { return int(a.id) - int(b.id) })
	return lanes, nil
}

// holdLanes locks the lanes against brokers, as far as somebody has ever used them. When a broker has one, holder is its pid, or what
// stands in its place.
func holdLanes(lanes []laneDir) (release func(), holder string) {
	var held []*os.File
	release = func() {
		for _, f := range held {
			f.Close()
		}
	}
	for _, lane := range lanes {
		f, err := os.Open(filepath.Join(lane.path, lockFile))
		if err != nil {
			continue // nobody could have locked it
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			pid := make([]byte, 20)
			n, _ := f.Read(pid)
			f.Close()
			release()
			if holder = strings.TrimSpace(string(pid[:n])); holder == "" {
				holder = "unknown"
			}
			return func() {}, holder
		}
		held = append(held, f)
	}
	return release, ""
}

// inUse says on standard error that a broker is at work on what is read.
func (a *app) inUse(lanes []laneDir) {
	release, holder := holdLanes(lanes)
	release()
	if holder != "" {
		fmt.Fprintf(a.stderr, "felix: a broker (pid %s) is using this log; its end is on the move\n", holder)
	}
}

// unreadable makes three lines of what package wal returned.
func unreadable(lane laneDir, err error) error {
	return &problem{exitFailure, "the log cannot be read", fmt.Sprintf("%s: %s", lane.path, strings.TrimPrefix(err.Error(), "wal: ")), "felix wal verify " + lane.path + ", or restore the directory from a backup"}
}

// damaged is how a command ends that has found damage and printed it.
func damaged(places int, dir string) error {
	return &problem{
		exitFailure, fmt.Sprintf("the log is damaged in %s", count(places, "place")), "they are listed above with what is lost; everything else reads well",
		"restore the files named from a backup, or start the broker: it refuses what is lost and serves the rest",
	}
}

func (a *app) walInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "inspect DIR",
		Short:       "Show segments, shards and damage of a log",
		Example:     "  felix wal inspect ./felix-data\n  felix wal inspect ./felix-data/lanes/lane-0 -o json",
		Args:        withArgs(1, 1, "a directory"),
		Annotations: map[string]string{outputs: "table json"},
		RunE: func(_ *cobra.Command, args []string) error {
			lanes, err := findLanes(args[0])
			if err != nil {
				return err
			}
			a.inUse(lanes)
			found := struct {
				Lanes []*wal.Inspection `json:"lanes"`
			}{}
			places := 0
			for _, lane := range lanes {
				i, err := wal.Inspect(nil, lane.path)
				if err != nil {
					return unreadable(lane, err)
				}
				places += len(i.Damage)
				found.Lanes = append(found.Lanes, i)
			}
			if a.output == "json" {
				err = a.printJSON(found)
			} else {
				err = a.printInspections(found.Lanes)
			}
			if err == nil && places > 0 {
				err = damaged(places, args[0])
			}
			return err
		},
	}
}

func (a *app) printInspections(lanes []*wal.Inspection) error {
	for n, i := range lanes {
		if n > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintf(a.stdout, "lane %d in %s: format %d, %s, %s, last group %d\n", i.Lane, i.Dir, i.Version, count(len(i.Segments), "segment"), count(i.Spares, "spare"), i.Sequence)
		var rows [][]string
		for _, s := range i.Segments {
			state := "open"
			switch {
			case s.Sealed && s.Footer:
				state = "sealed"
			case s.Sealed:
				state = "sealed, no footer"
			}
			used := "-" // of a sealed one that recovery had no need to scan
			if s.UsedBytes > 0 {
				used = bytesText(s.UsedBytes)
			}
			rows = append(rows, []string{"  " + s.Name, bytesText(s.Bytes), used, state, s.Created})
		}
		if len(rows) > 0 {
			if err := printTable(a.stdout, []string{"  SEGMENT", "SIZE", "USED", "STATE", "CREATED"}, rows); err != nil {
				return err
			}
		}
		rows = nil
		for _, s := range i.Shards {
			stream, index := felix.LogShard(s.Shard)
			last := "-"
			if s.LastTime > 0 {
				last = time.UnixMicro(s.LastTime).UTC().Format(time.RFC3339)
			}
			rows = append(rows, []string{"  " + strconv.FormatUint(s.Shard, 10), strconv.FormatUint(stream, 10), strconv.Itoa(int(index)), s.Offsets, bytesText(s.Bytes), last})
		}
		if len(rows) > 0 {
			if err := printTable(a.stdout, []string{"  SHARD", "STREAM ID", "INDEX", "OFFSETS", "SIZE", "LAST RECORD"}, rows); err != nil {
				return err
			}
		}
		a.printFindings(i.Damage, i.Notices, i.Cut)
	}
	return nil
}

// printFindings prints what an operator should know of a lane.
func (a *app) printFindings(damage []wal.Damage, notices []string, cut *wal.Cut) {
	for _, d := range damage {
		fmt.Fprintf(a.stdout, "  damage: %s\n", oneLine(d.String()))
	}
	if cut != nil {
		fmt.Fprintf(a.stdout, "  torn end: %s byte %d; nothing in it was acknowledged, the next start cuts it off\n", cut.Segment, cut.Byte)
	}
	for _, n := range notices {
		fmt.Fprintf(a.stdout, "  notice: %s\n", oneLine(n))
	}
}

func (a *app) walVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "verify DIR",
		Short:       "Read every byte of a log and report damage",
		Long:        "Verify reads every segment from front to back: headers, groups, batches, footers, and whether the offsets of every shard are\nthere. It needs a directory that no broker uses, keeps brokers out while it reads, changes nothing, and ends with 1 when it\nfinds damage.",
		Args:        withArgs(1, 1, "a directory"),
		Annotations: map[string]string{outputs: "table json"},
		RunE: func(cmd *cobra.Command, args []string) error {
			lanes, err := findLanes(args[0])
			if err != nil {
				return err
			}
			release, holder := holdLanes(lanes)
			defer release()
			if holder != "" {
				return &problem{
					exitConflict, "the log was not verified", fmt.Sprintf("a broker (pid %s) is using %s, and what it is writing would look like damage", holder, args[0]),
					"the same command when that broker has ended, or on a copy; felix wal inspect works beside it",
				}
			}
			found := struct {
				Lanes []*wal.Verification `json:"lanes"`
			}{}
			places := 0
			for _, lane := range lanes {
				if err := cmd.Context().Err(); err != nil {
					return err
				}
				v, err := wal.Verify(nil, lane.path)
				if err != nil {
					return unreadable(lane, err)
				}
				places += len(v.Damage)
				found.Lanes = append(found.Lanes, v)
			}
			if a.output == "json" {
				if err := a.printJSON(found); err != nil {
					return err
				}
			} else {
				for _, v := range found.Lanes {
					verdict := "no damage"
					if n := len(v.Damage); n > 0 {
						verdict = count(n, "place") + " damaged"
					}
					fmt.Fprintf(a.stdout, "lane %d in %s: %s, %s, %s, %s read: %s\n", v.Lane, v.Dir,
						count(v.Segments, "segment"), count(v.Groups, "group"), countOf(v.Batches, "batch", "batches"), bytesText(v.Bytes), verdict)
					a.printFindings(v.Damage, v.Notices, v.Cut)
				}
			}
			if places > 0 {
				return damaged(places, args[0])
			}
			return nil
		},
	}
}

func (a *app) walDumpCommand() *cobra.Command {
	var o wal.DumpOptions
	var from, to uint64
	cmd := &cobra.Command{
		Use:         "dump DIR",
		Short:       "Print every batch of a log, in the order in which they were written",
		Example:     "  felix wal dump ./felix-data/lanes/lane-0 --shard 1024 --payloads",
		Args:        withArgs(1, 1, "a directory"),
		Annotations: map[string]string{outputs: "table json"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Shard == 0 && (from != 0 || to != 0) {
				return usage(cmd, "from and to are offsets of one shard, and shard is not given; felix wal inspect lists the shards")
			}
			lanes, err := findLanes(args[0])
			if err != nil {
				return err
			}
			a.inUse(lanes)
			o.From, o.To, o.JSON = wire.Offset(from), wire.Offset(to), a.output == "json"
			out := newLateWriter(a.stdout, func() {})
			defer out.close()
			for _, lane := range lanes {
				if len(lanes) > 1 {
					if o.JSON {
						err = newJSONEncoder(out).Encode(struct {
							Dir string `json:"dir"`
						}{lane.path})
					} else {
						_, err = fmt.Fprintf(out, "%s\n", lane.path)
					}
					if err != nil {
						return err
					}
				}
				if err := wal.Dump(nil, lane.path, out, o); err != nil {
					if isClosedPipe(err) {
						return err
					}
					return unreadable(lane, err)
				}
			}
			return out.close()
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&o.Shard, "shard", 0, "only this shard, by its number in felix wal inspect")
	flags.Uint64Var(&from, "from", 0, "of that shard, batches from this offset on")
	flags.Uint64Var(&to, "to", 0, "of that shard, batches below this offset (default no end)")
	flags.BoolVar(&o.Payloads, "payloads", false, "print the records, too")
	return cmd
}
