package rolling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// stopWithin is how long a gateway may take to end after SIGTERM, beyond its grace.
const stopWithin = 5 * time.Second

// replica is one gateway: where it listens, and the process that runs now.
type replica struct {
	address string

	mu      sync.Mutex
	process *devgateway.Process
}

// fleet is the gateways over one state. They are gateways of `dev`, because those alone
// post to webhooks on this machine.
type fleet struct {
	name     string
	binary   string
	dir      string // the folder of their identity
	config   string
	grace    time.Duration
	replicas []*replica
	unsaved  time.Duration // what a gateway that is killed may not have saved of its evidence
	kills    []time.Time
	log      []string // of processes that ended
}

// identity makes the trust that all gateways, agents and callers share.
func identity(ctx context.Context, binary, dir string) (*devgateway.Trust, error) {
	p, err := devgateway.Start(ctx, devgateway.Deps{Binary: binary, Dir: dir})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	return p.Trust, p.Stop(ctx)
}

// launch starts as many gateways over the given state. The fleet must be stopped, also
// after an error.
func launch(ctx context.Context, f *fleet, many int, state, agents string) error {
	text := strings.NewReplacer("STATE", state, "AGENTS", agents, "GRACE", f.grace.String()).Replace(`
timeout: 10s
shutdown_delay: 300ms
shutdown_grace: GRACE
limits: {rate: 100000, burst: 100000, memory_mib: 4096, connections: 4096, requests: 4096, share: 1} # one caller makes all the calls, and after a restart all that waited at once
state: {STATE}
agents:
  worker: {endpoints: [{binding: a2a-v1, url: "AGENTS"}]}
  tools: {endpoints: [{binding: mcp-v1, url: "AGENTS/tools"}]}
  tasks: {endpoints: [{binding: mcp-v1, url: "AGENTS/tasks"}]}
  held: {revision: "2025-11-25", endpoints: [{binding: mcp-v1, url: "AGENTS/held"}]}
`)
	f.config = filepath.Join(filepath.Dir(f.dir), f.name+".yaml")
	if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
		return err
	}
	for range many {
		port, err := redisserver.FreePort()
		if err != nil {
			return err
		}
		r := &replica{address: "127.0.0.1:" + port}
		f.replicas = append(f.replicas, r)
		if err := f.start(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) start(ctx context.Context, r *replica) error {
	p, err := devgateway.Start(ctx, devgateway.Deps{Binary: f.binary, Dir: f.dir, Args: []string{"--addr", r.address, "--config", f.config}})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process = p
	return nil
}

// end ends a gateway by a signal, and returns what it printed.
func (r *replica) end(ctx context.Context, abrupt bool, within time.Duration) (string, error) {
	r.mu.Lock()
	p := r.process
	r.process = nil
	r.mu.Unlock()
	if p == nil {
		return "", nil
	}
	if abrupt {
		return p.Output(), p.Kill()
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := p.Stop(ctx)
	return p.Output(), err
}

// restart ends a gateway and starts it again.
func (f *fleet) restart(ctx context.Context, i int, abrupt bool) error {
	if abrupt {
		f.kills = append(f.kills, time.Now())
	}
	output, err := f.replicas[i].end(ctx, abrupt, f.grace+stopWithin)
	f.log = append(f.log, fmt.Sprintf("== %s %d, ended\n%s", f.name, i, output))
	if err != nil {
		return err
	}
	return f.start(ctx, f.replicas[i])
}

// other is a replica beside i: the next but n. With one alone it is that one.
func (f *fleet) other(i, n int) int {
	if len(f.replicas) == 1 {
		return i
	}
	return (i + 1 + n%(len(f.replicas)-1)) % len(f.replicas)
}

// up waits until the gateway listens again where there is but one.
func (f *fleet) up(ctx context.Context, i int) {
	for len(f.replicas) == 1 {
		f.replicas[i].mu.Lock()
		running := f.replicas[i].process != nil
		f.replicas[i].mu.Unlock()
		if running || !wait.Pause(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// output is what the gateways printed.
func (f *fleet) output() string {
	out := f.log
	for i, r := range f.replicas {
		r.mu.Lock()
		if r.process != nil {
			out = append(out, "== "+f.name+" "+strconv.Itoa(i)+"\n"+r.process.Output())
		}
		r.mu.Unlock()
	}
	return strings.Join(out, "\n")
}

func (f *fleet) stop(ctx context.Context) error {
	var errs []error
	for _, r := range f.replicas {
		_, err := r.end(ctx, true, 0)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
