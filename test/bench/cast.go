package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/profile"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// stopTime is what everything together gets to end in.
const stopTime = 45 * time.Second

// upstreamName is the MCP server's name in the gateway's directory.
const upstreamName = "bench"

// gatewayLimits lifts the gateway's rate limits out of the way: one caller makes
// all the calls. The other limits have room for its 32 connections.
const gatewayLimits = "limits: {rate: 1000000, burst: 1000000}\n"

// formerName is the case of another build of the gateway (--against).
const formerName = "former"

func caseNames() []string { return []string{"direct", "proxy", "floor", "gateway"} }

func concurrencies() []int { return []int{1, 8, 32} }

// cast is everybody who takes part.
type cast struct {
	config   string              // more of the gateway's configuration
	profiles string              // where profiles go; empty: there are none
	http2    bool                // callers speak it
	gateway  *devgateway.Process // nil without its case
	former   *devgateway.Process // nil without its case
	others   []*devgateway.Process
	binary   string // of the gateway; empty: not built yet
	trust    *devgateway.Trust
	children []*child
	subjects []*subject
}

// assemble starts what the cases need. What it returns must be stopped, also
// when it comes with an error.
func assemble(ctx context.Context, dir string, o options) (*cast, error) {
	c := &cast{profiles: o.profile, http2: o.http2}
	if err := c.found(ctx, dir, slices.Contains(o.cases, "gateway")); err != nil {
		return c, err
	}
	if o.against != "" {
		if err := c.startFormer(ctx, dir, o.against, ""); err != nil {
			return c, err
		}
	}
	upstream, err := c.start(ctx, "upstream", script{})
	if err != nil {
		return c, err
	}
	for _, process := range []*devgateway.Process{c.gateway, c.former} {
		if process == nil {
			continue
		}
		if err := process.AddAgent(ctx, upstreamName, "mcp-v1", upstream.url+"/mcp"); err != nil {
			return c, err
		}
	}
	for _, name := range o.cases {
		s, err := c.subject(ctx, name, upstream)
		if err != nil {
			return c, err
		}
		c.subjects = append(c.subjects, s)
	}
	return c, nil
}

// found starts the gateway and takes its trust domain, or makes one.
func (c *cast) found(ctx context.Context, dir string, withGateway bool) (err error) {
	if !withGateway {
		c.trust, err = devgateway.NewTrust("bench.test")
		return err
	}
	config := filepath.Join(dir, "limits.yaml")
	if err := os.WriteFile(config, []byte(gatewayLimits+c.config), 0o600); err != nil {
		return err
	}
	if c.binary == "" {
		if c.binary, err = c.build(ctx, dir); err != nil {
			return err
		}
	}
	c.gateway, err = devgateway.Start(ctx, devgateway.Deps{
		Binary: c.binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", config}, Env: c.profiled("gateway"),
	})
	if err != nil {
		return err
	}
	c.trust = c.gateway.Trust
	return nil
}

// build compiles the gateway, so that it can be profiled if it is to be.
func (c *cast) build(ctx context.Context, dir string) (string, error) {
	if c.profiles == "" {
		return devgateway.Build(ctx, dir)
	}
	binary, overlay := filepath.Join(dir, "aepb-gateway"), filepath.Join(dir, "overlay.json")
	if err := layOver(overlay); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, program).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("bench: build: %w\n%s", err, out)
	}
	return binary, nil
}

// program is the gateway.
const program = "github.com/aepb/aepb-gateway/cmd/aepb-gateway"

// layOver writes an overlay of "go build": the gateway, and the file that has it profiled.
func layOver(path string) error {
	_, self, _, ok := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(self)))
	if _, err := os.Stat(filepath.Join(root, "go.mod")); !ok || err != nil {
		return errors.New("bench: --profile compiles the gateway: run it in the repository, with go run ./test/bench")
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(root, "cmd", "aepb-gateway", "profile.go"): filepath.Join(root, "test", "bench", "testdata", "profile.go.txt"),
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// profiled is the environment of a process that is to be profiled.
func (c *cast) profiled(name string) []string {
	if c.profiles == "" {
		return nil
	}
	return []string{profile.Variable + "=" + filepath.Join(c.profiles, name)}
}

// collect lets each case write its profiles, but the other build of the gateway.
func (c *cast) collect(ctx context.Context, dir string) (err error) {
	for _, s := range c.subjects {
		name := s.name
		switch name {
		case formerName:
			continue
		case "direct":
			name = "upstream"
		}
		err = errors.Join(err, profile.Collect(ctx, s.process.pid, filepath.Join(dir, name)))
	}
	return err
}

// startFormer starts another build of the gateway with the same keys and
// certificates, and state of its own; more is of its configuration.
func (c *cast) startFormer(ctx context.Context, dir, binary, more string) (err error) {
	if c.gateway == nil {
		return fmt.Errorf("%w: --against compares with the case gateway, which is not among --cases", errUsage)
	}
	c.former, err = c.another(ctx, dir, devgateway.Deps{Binary: binary}, more)
	return err
}

// another starts one more gateway with the keys and certificates of the first, and state of
// its own; d has its program and environment, and more is of its configuration.
func (c *cast) another(ctx context.Context, dir string, d devgateway.Deps, more string) (*devgateway.Process, error) {
	own, err := os.MkdirTemp(dir, ".another-")
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(c.gateway.Dir, "*.pem"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(own, filepath.Base(file)), text, 0o600); err != nil {
			return nil, err
		}
	}
	config := own + ".yaml"
	if err := os.WriteFile(config, []byte(gatewayLimits+more), 0o600); err != nil {
		return nil, err
	}
	d.Dir, d.Args = own, []string{"--config", config}
	started, err := devgateway.Start(ctx, d)
	if err == nil {
		c.others = append(c.others, started)
	}
	return started, err
}

// start starts a child, with more of an environment.
func (c *cast) start(ctx context.Context, role string, s script, env ...string) (*child, error) {
	started, err := startChild(ctx, role, c.trust, s, append(c.profiled(role), env...))
	if err == nil {
		c.children = append(c.children, started)
	}
	return started, err
}

// subject prepares one case.
func (c *cast) subject(ctx context.Context, name string, upstream *child) (*subject, error) {
	svid := c.trust.ClientSVID()
	sender, err := newMinter(svid)
	if err != nil {
		return nil, err
	}
	client := c.trust.Client(svid)
	if transport, ok := client.Transport.(*http.Transport); ok {
		transport.ForceAttemptHTTP2 = c.http2
	}
	s := &subject{
		name: name, client: client, rate: map[int]float64{},
		headers: setMCP, calls: callMaker{body: mcpBody},
	}
	if name == "floor" || name == "gateway" || name == formerName {
		s.headers, s.calls = setA2A, callMaker{sender: sender, audience: c.trust.GatewayID(), body: a2aBody}
	}
	if running := map[string]*devgateway.Process{"gateway": c.gateway, formerName: c.former}[name]; running != nil {
		s.url = running.Public + "/agents/" + upstreamName + "/a2a"
		s.process = process{running.PID(), askGateway(running)}
		return s, nil
	}
	server := upstream
	if name != "direct" {
		server, err = c.start(ctx, name, script{
			Upstream: upstream.url + "/mcp", Gateway: c.trust.GatewayID(), Client: svid.Certificate[0], HTTP2: c.http2,
		})
		if err != nil {
			return nil, err
		}
	}
	s.url = server.url + path(name)
	s.process = process{server.pid(), askChild(s.client, server.url)}
	return s, nil
}

// direction is one way between A2A and MCP.
type direction struct{ from, to string }

func directions() []direction { return []direction{{"a2a", "mcp"}, {"mcp", "a2a"}} }

// String is its name in the output.
func (d direction) String() string { return d.from + " to " + d.to }

// side is a case of the comparison with the bridge of the official SDKs: the bridge, or a gateway.
type side struct {
	name   string
	bridge bool
	binary string   // of a gateway; empty: this build
	env    []string // more of its environment
}

// The cases of that comparison; the gateway's is that of the exchange.
const (
	bridgeName = "bridge"        // GOGC=100, which is Go's default
	eagerName  = "bridge 225"    // GOGC=225: it collects garbage less often, and takes more memory
	againName  = "gateway again" // the same as gateway, in another process
)

// sides are the cases that the flags name.
func (o options) sides() []side {
	all := []side{
		{name: "gateway"},
		{name: againName},
		{name: bridgeName, bridge: true, env: []string{"GOGC=100"}},
		{name: eagerName, bridge: true, env: []string{"GOGC=225"}},
	}
	for _, n := range o.procs {
		all = append(all, side{name: procsPrefix + strconv.Itoa(n), env: []string{"GOMAXPROCS=" + strconv.Itoa(n)}})
	}
	if o.against != "" {
		all = append(all, side{name: formerName, binary: o.against})
	}
	return all
}

// procsPrefix begins the names of the cases of a gateway with another GOMAXPROCS, which ends them.
const procsPrefix = "gateway procs "

// bridges starts the cases of one direction between callers and an upstream, whose MCP server
// is at /mcp and whose A2A agent is at /a2a. The gateway of the cast is the first case.
func (c *cast) bridges(ctx context.Context, dir string, d direction, sides []side, upstream string) error {
	for _, one := range sides {
		s := &subject{name: one.name, client: c.trust.Client(c.trust.ClientSVID()), rate: map[int]float64{}}
		c.subjects = append(c.subjects, s)
		if transport, ok := s.client.Transport.(*http.Transport); ok {
			transport.ForceAttemptHTTP2 = c.http2
		}
		start := c.besideBridge
		if one.bridge {
			start = c.startBridge
		}
		if err := start(ctx, dir, s, d, one, upstream); err != nil {
			return fmt.Errorf("bench: %s: %w", one.name, err)
		}
		if err := s.speak(ctx, d.from); err != nil {
			return err
		}
	}
	return nil
}

func (c *cast) startBridge(ctx context.Context, _ string, s *subject, d direction, one side, upstream string) error {
	started, err := c.start(ctx, bridgeName, script{Upstream: upstream, HTTP2: c.http2}, one.env...)
	if err != nil {
		return err
	}
	s.url, s.process = started.url+"/"+d.from, process{started.pid(), askChild(s.client, started.url)}
	return nil
}

func (c *cast) besideBridge(ctx context.Context, dir string, s *subject, d direction, one side, upstream string) (err error) {
	running := c.gateway
	if one.name != "gateway" {
		if running, err = c.another(ctx, dir, devgateway.Deps{Binary: cmp.Or(one.binary, c.binary), Env: one.env}, ""); err != nil {
			return err
		}
	}
	s.url, s.process = running.Public+"/agents/"+upstreamName+"/"+d.from, process{running.PID(), askGateway(running)}
	return running.AddAgent(ctx, upstreamName, d.to+"-v1", upstream+"/"+d.to)
}

// path at a case's server; the proxy appends to its target's.
func path(name string) string {
	if name == "direct" {
		return "/mcp"
	}
	return "/"
}

// stop ends everything, also what is only half there.
func (c *cast) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	var errs []error
	for _, s := range c.subjects {
		s.client.CloseIdleConnections()
	}
	for _, process := range append([]*devgateway.Process{c.gateway}, c.others...) {
		if process != nil {
			errs = append(errs, process.Stop(ctx))
		}
	}
	for _, started := range slices.Backward(c.children) {
		if err := started.stop(); err != nil {
			errs = append(errs, fmt.Errorf("bench: a server: %w", err))
		}
	}
	return errors.Join(errs...)
}
