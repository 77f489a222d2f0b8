package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The gateway's configuration: no limits in the way, and little evidence, so that
// its bound is reached in the warm-up.
const (
	goodConfig = "limits: {rate: 1000000, burst: 1000000}\nstate: {evidence_mib: 8}\n"
	badConfig  = goodConfig + "policy: {hop_scope: sideways}\n"
)

// stopTime is what everybody together gets to end in.
const stopTime = 45 * time.Second

// rig is everybody who takes part.
type rig struct {
	gateway  *devgateway.Process
	agents   *httptest.Server
	config   string
	minter   *devgateway.Minter
	lifetime time.Duration // of ECTs

	self, nobody *http.Client // with the development client's certificate, and without one
}

// assemble starts the gateway and its agents. What it returns must be stopped,
// also when it comes with an error.
func assemble(ctx context.Context, dir string, lifetime time.Duration) (*rig, error) {
	r := &rig{config: filepath.Join(dir, "soak.yaml"), lifetime: lifetime}
	if err := os.WriteFile(r.config, []byte(goodConfig), 0o600); err != nil {
		return r, err
	}
	binary, err := devgateway.Build(ctx, dir)
	if err != nil {
		return r, err
	}
	r.gateway, err = devgateway.Start(ctx, devgateway.Deps{Binary: binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", r.config}})
	if err != nil {
		return r, err
	}
	if r.agents, err = serveAgents(r.gateway.Trust); err != nil {
		return r, err
	}
	svid := r.gateway.ClientSVID()
	r.self, r.nobody = r.gateway.Client(svid), r.gateway.Client()
	if r.minter, err = r.gateway.NewMinter(); err != nil {
		return r, err
	}
	return r, errors.Join(
		r.gateway.AddAgent(ctx, "tool", "mcp-v1", r.agents.URL+"/mcp"),
		r.gateway.AddAgent(ctx, "talker", "a2a-v1", r.agents.URL),
	)
}

func (r *rig) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	for _, client := range []*http.Client{r.self, r.nobody} {
		if client != nil {
			client.CloseIdleConnections()
		}
	}
	var err error
	if r.gateway != nil {
		err = r.gateway.Stop(ctx)
	}
	if r.agents != nil {
		r.agents.Close()
	}
	return err
}
