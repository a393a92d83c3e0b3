package load

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds a package with the go tool into program. dir is a directory of the module, empty for the present one; flags are those of
// go build. An error says what the tool said.
func Build(ctx context.Context, dir, program, name string, flags ...string) error {
	return build(ctx, dir, name, "go", append(append([]string{"build"}, flags...), "-o", program, name)...)
}

// BuildJumbo builds a package of felix into program for packets of up to 8,932 bytes, with .ci/jumbo of the tree at root. Both ends of a
// connection must be such builds for it to have them.
func BuildJumbo(ctx context.Context, root, program, name string) error {
	return build(ctx, root, name, filepath.Join(root, ".ci", "jumbo"), "build", "-o", program, name)
}

func build(ctx context.Context, dir, name, tool string, args ...string) error {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s build %s in %q: %w\n%s", filepath.Base(tool), name, dir, err, text)
	}
	return nil
}
