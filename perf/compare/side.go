package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"felix/perf/load"
)

// A side is what one side of a comparison runs.
type side struct {
	text     string // for people
	revision string // of git; empty for this tree or a file
	file     string // a felixd; empty when it is to be built
	env      []string
	program  string // felixd, once it is built
}

// parseSide reads the words of a side.
func parseSide(text string) (s side, err error) {
	s.text = strings.Join(strings.Fields(text), " ")
	if s.text == "" {
		s.text = "this tree"
	}
	for word := range strings.FieldsSeq(text) {
		revision, isRevision := strings.CutPrefix(word, "rev:")
		file, isFile := strings.CutPrefix(word, "bin:")
		name, _, isEnv := strings.Cut(word, "=")
		switch {
		case (isRevision || isFile) && (s.revision != "" || s.file != ""):
			return s, fmt.Errorf("%q names two builds; give one", text)
		case isRevision && revision != "" && !strings.HasPrefix(revision, "-"):
			s.revision = revision
		case isFile && file != "":
			s.file = file
		case isEnv && name != "" && !isRevision && !isFile:
			s.env = append(s.env, word)
		default:
			return s, fmt.Errorf("%q is none of rev:REVISION, bin:FILE, NAME=VALUE", word)
		}
	}
	return s, nil
}

// A builder builds brokers, each revision once.
type builder struct {
	dir   string
	trees []string          // work trees that were added
	built map[string]string // program by revision
}

// build returns the felixd of a side.
func (b *builder) build(ctx context.Context, s side) (program string, err error) {
	if s.file != "" {
		info, err := os.Stat(s.file)
		switch {
		case err != nil:
			return "", err
		case info.IsDir() || info.Mode()&0o111 == 0:
			return "", fmt.Errorf("%s is no program", s.file)
		}
		return filepath.Abs(s.file)
	}
	if program := b.built[s.revision]; program != "" {
		return program, nil
	}
	tree := "" // where to build; empty for here
	n := len(b.built)
	if s.revision != "" {
		tree = filepath.Join(b.dir, fmt.Sprintf("tree-%d", n))
		if err := command(ctx, "", "git", "worktree", "add", "--detach", tree, s.revision); err != nil {
			return "", err
		}
		b.trees = append(b.trees, tree)
	}
	program = filepath.Join(b.dir, fmt.Sprintf("felixd-%d", n))
	if err := load.Build(ctx, tree, program, "felix/cmd/felixd"); err != nil {
		return "", err
	}
	if b.built == nil {
		b.built = map[string]string{}
	}
	b.built[s.revision] = program
	return program, nil
}

// close takes the work trees away.
func (b *builder) close() error {
	var errs []error
	for _, tree := range b.trees {
		errs = append(errs, command(context.Background(), "", "git", "worktree", "remove", "--force", tree))
	}
	return errors.Join(errs...)
}

// command runs a program in dir and says what it said when it fails.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}
