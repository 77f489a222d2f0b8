// Package redisserver starts real redis-server processes on loopback for tests of
// several gateways, and ends them.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// Server is one redis-server in a folder of its own, over which it starts again.
type Server struct {
	address string
	args    []string
	process *exec.Cmd
}

// Start starts a server in dir that has written what it acknowledges; more are
// arguments of redis-server. What comes with an error must be ended, too, unless
// it is nil.
func Start(ctx context.Context, dir string, more ...string) (*Server, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Server{address: "127.0.0.1:" + port, args: append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--logfile", "log",
	}, more...)}
	return s, s.Start(ctx)
}

// Address is host:port where it listens.
func (s *Server) Address() string { return s.address }

// Start starts a server that was ended, over what it wrote.
func (s *Server) Start(ctx context.Context) error {
	s.process = exec.CommandContext(context.WithoutCancel(ctx), "redis-server", s.args...)
	if err := s.process.Start(); err != nil {
		return fmt.Errorf("redisserver: redis-server is needed (make redis): %w", err)
	}
	return wait.Until(ctx, "redis answers", func() bool { return s.Ask(ctx, "PING") == "PONG" })
}

// Ask says one command; "" if there is no answer.
func (s *Server) Ask(ctx context.Context, command ...string) string {
	_, port, _ := strings.Cut(s.address, ":")
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-p", port}, command...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// End sends the process a signal that stops it, and waits for it. A nil server has
// ended.
func (s *Server) End(how os.Signal) error {
	if s == nil || s.process == nil || s.process.ProcessState != nil {
		return nil
	}
	if err := s.process.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	var exit *exec.ExitError
	if err := s.process.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// FreePort is one whose cluster bus, ten thousand above, is free too, and below
// those that systems give to clients.
func FreePort() (string, error) {
	for range 100 {
		port := 11000 + rand.IntN(11000)
		if free(port) && free(port+10000) {
			return strconv.Itoa(port), nil
		}
	}
	return "", errors.New("redisserver: no free port")
}

func free(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	return err == nil && l.Close() == nil
}
