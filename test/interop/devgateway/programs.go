package devgateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// builtVariable names a folder with programs that are built already. Only the Makefile
// sets it, after it built them: tests of a program older than the code prove nothing.
const builtVariable = "AEPB_BIN"

// module is where the programs are, as folders of cmd.
const module = "github.com/aepb/aepb-gateway"

// ErrNotBuilt says that a program is not where AEPB_BIN says it is.
var ErrNotBuilt = errors.New("devgateway: no such program in the folder AEPB_BIN: unset that, or run make test")

// Build compiles the gateway into dir and returns the binary's path. Where AEPB_BIN
// names a folder it returns the binary that is there.
func Build(ctx context.Context, dir string) (string, error) {
	dir, err := programs(ctx, dir, "aepb-gateway")
	return filepath.Join(dir, "aepb-gateway"), err
}

// BuildAll is Build for the gateway and aepbctl, and returns the folder that has them.
func BuildAll(ctx context.Context, dir string) (string, error) {
	return programs(ctx, dir, "aepb-gateway", "aepbctl")
}

func programs(ctx context.Context, dir string, names ...string) (string, error) {
	built := os.Getenv(builtVariable)
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		if built != "" {
			if _, err := os.Stat(filepath.Join(built, name)); err != nil {
				return "", fmt.Errorf("%w: %w", ErrNotBuilt, err)
			}
		}
		args = append(args, module+"/cmd/"+name)
	}
	if built != "" {
		return built, nil
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("devgateway: build: %w\n%s", err, out)
	}
	return dir, nil
}
