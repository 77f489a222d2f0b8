// Package hosts has the tests of deploy/systemd, deploy/examples and deploy/README.md.
package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// Folders of the repository, from here.
var (
	repository = filepath.Join("..", "..", "..")
	folder     = filepath.Join(repository, "deploy")
	examples   = filepath.Join(folder, "examples")
	systemd    = filepath.Join(folder, "systemd")
)

// gateway is the program under test.
var gateway string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	built := os.Getenv("AEPB_BIN") // of the Makefile, which has built it
	if built == "" {
		dir, err := os.MkdirTemp("", "aepb-hosts-*")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		build := exec.Command("go", "build", "-o", dir, "./cmd/aepb-gateway")
		build.Dir = repository
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		built = dir
	}
	gateway = filepath.Join(built, "aepb-gateway")
	return m.Run()
}

// read returns the text of a file.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// example returns an example as it is in the repository.
func example(t *testing.T, name string) config.Config {
	t.Helper()
	return parse(t, read(t, filepath.Join(examples, name+".yaml")))
}

// parse reads a configuration. Programs of agents, which Parse looks for, need not be there.
func parse(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if !config.Readable(c) {
		t.Fatal(err)
	}
	return c
}

// stopTime returns how long the gateway may take to end after SIGTERM.
func stopTime(c config.Config) time.Duration {
	delay, grace := c.Shutdown(false)
	return delay + grace + 2*time.Second
}
