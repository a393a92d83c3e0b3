package felix

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// release is the version of this tree.
const release = "0.1.0"

// Version is the release, the commit it was built from where the build knows, and the Go version.
func Version() string { return version() }

var version = sync.OnceValue(func() string {
	text := release
	if info, ok := debug.ReadBuildInfo(); ok {
		revision, modified := "", ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				revision = "+" + s.Value[:12]
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = ".dirty"
			}
		}
		if revision != "" {
			text += revision + modified
		}
	}
	return text + " (" + runtime.Version() + ")"
})
