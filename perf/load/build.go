package load

import (
	"context"
	"fmt"
	"os/exec"
)

// Build builds a package with the go tool into program. dir is a directory of the module, empty for the present one; flags are those of
// go build. An error says what the tool said.
func Build(ctx context.Context, dir, program, name string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build"}, flags...), "-o", program, name)...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s in %q: %w\n%s", name, dir, err, text)
	}
	return nil
}
