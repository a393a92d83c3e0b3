package session

import (
	"flag"
	"slices"
	"strings"
)

// CommandLine is how a command is given again: what it is called, and the flags that were given but for those of leaveOut, which say where
// this machine keeps files and have no part in the figures. It is recorded, so it must mean the same elsewhere.
func CommandLine(call string, flags *flag.FlagSet, leaveOut ...string) string {
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains(leaveOut, f.Name) {
			call += " -" + f.Name + "=" + quoted(f.Value.String())
		}
	})
	return call
}

// quoted is a word of a shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-+,:/", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
