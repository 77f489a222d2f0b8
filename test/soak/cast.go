package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

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
	minter   *minter
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
	if r.minter, err = newMinter(svid); err != nil {
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

// minter signs ECTs for one identity.
type minter struct {
	issuer, kid string
	key         *ecdsa.PrivateKey
	chain       []string
}

type claims struct {
	jwt.RegisteredClaims
	Workflow   string   `json:"wid"`
	Act        string   `json:"exec_act"`
	Parents    []string `json:"par"`
	OutputHash string   `json:"out_hash"`
}

func newMinter(svid tls.Certificate) (*minter, error) {
	key, ok := svid.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || len(svid.Leaf.URIs) != 1 {
		return nil, errors.New("soak: the client's SVID is not one")
	}
	kid, err := devgateway.Thumbprint(&key.PublicKey)
	m := &minter{issuer: svid.Leaf.URIs[0].String(), kid: kid, key: key}
	for _, der := range svid.Certificate {
		m.chain = append(m.chain, base64.StdEncoding.EncodeToString(der))
	}
	return m, err
}

// mint signs an ECT for a body.
func (m *minter) mint(audience, body, workflow string, lifetime time.Duration) (string, error) {
	now, sum := time.Now(), sha256.Sum256([]byte(body))
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: m.issuer, ID: uuid.NewString(), Audience: jwt.ClaimStrings{audience},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)),
		},
		Workflow: workflow, Act: "send_task", Parents: []string{}, OutputHash: base64.RawURLEncoding.EncodeToString(sum[:]),
	})
	token.Header["typ"], token.Header["kid"], token.Header["x5c"] = "exec+jwt", m.kid, m.chain
	return token.SignedString(m.key)
}
