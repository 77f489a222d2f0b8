package e2e

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// storyLimit bounds what the stories execute, all together.
const storyLimit = 5 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPrograms_EndToEnd builds both programs once and runs everything with them.
func TestPrograms_EndToEnd(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	bin := build(t, root)
	t.Run("story", func(t *testing.T) { tell(t, root, bin) })
	t.Run("demo --json", func(t *testing.T) { demoPrintsProof(t, bin) })
	t.Run("demo --keep", func(t *testing.T) { demoKeepsRunning(t, root, bin) })
	t.Run("demo --scene failure", func(t *testing.T) { demoRetires(t, bin) })
	t.Run("demo --scene approval", func(t *testing.T) { demoApproves(t, bin) })
	t.Run("demo --scene rollback", func(t *testing.T) { demoUndoes(t, bin) })
	t.Run("scraped by Prometheus", func(t *testing.T) { scraped(t, root, bin) })
}

// build compiles the programs, with the race detector if the test has it: then a
// race in them is a bad exit code.
func build(t *testing.T, root string) string {
	t.Helper()
	bin := t.TempDir()
	args := []string{"build", "-o", bin + string(filepath.Separator)}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./cmd/...", "./test/e2e/toolbox")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// tell runs the scripts of testdata and those that the pages are.
func tell(t *testing.T, root, bin string) {
	t.Helper()
	stories, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:              append(stories, pageStories(t, root)...),
		Setup:              func(env *testscript.Env) error { return enter(env, root, bin) },
		Cmds:               commands(),
		RequireUniqueNames: true,
		Deadline:           time.Now().Add(storyLimit),
	})
}
