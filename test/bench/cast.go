package main

import (
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
	binary, err := c.build(ctx, dir)
	if err != nil {
		return err
	}
	c.gateway, err = devgateway.Start(ctx, devgateway.Deps{
		Binary: binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", config}, Env: c.profiled("gateway"),
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
	own := filepath.Join(dir, ".former")
	if err := os.Mkdir(own, 0o700); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(c.gateway.Dir, "*.pem"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(own, filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	config := filepath.Join(dir, "former.yaml")
	if err := os.WriteFile(config, []byte(gatewayLimits+more), 0o600); err != nil {
		return err
	}
	c.former, err = devgateway.Start(ctx, devgateway.Deps{Binary: binary, Dir: own, Args: []string{"--config", config}})
	return err
}

func (c *cast) start(ctx context.Context, role string, s script) (*child, error) {
	started, err := startChild(ctx, role, c.trust, s, c.profiled(role))
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
	for _, process := range []*devgateway.Process{c.gateway, c.former} {
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
