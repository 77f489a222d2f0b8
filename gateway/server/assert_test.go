package server

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
)

// TestAssert_JWTSVIDOfTheWorkloadAPI: with a Workload API its JWT-SVID vouches for the gateway, for the token endpoint.
func TestAssert_JWTSVIDOfTheWorkloadAPI(t *testing.T) {
	t.Parallel()
	authority, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: "example.com"})
	must(t, err)
	svid, err := authority.Issue("/gateway", identity.SVIDRequest{})
	must(t, err)
	bundle, err := authority.Bundle()
	must(t, err)
	agent := workloadtest.NewPipedAgent(t)
	agent.Say(t, workloadtest.Identity{ID: string(svid.ID), Chain: svid.Chain, Key: svid.Key, Anchors: bundle.Anchors()})
	agent.SayTokens(workloadtest.Tokens{ID: string(svid.ID), Mint: func(audience []string) string {
		claims, _ := json.Marshal(map[string]any{"sub": svid.ID, "aud": audience, "exp": time.Now().Add(time.Hour).Unix()})
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode(claims) + "." + encode(make([]byte, 64))
	}})
	workload, err := identity.OpenWorkload(t.Context(), identity.WorkloadDeps{Address: agent.Address, Dial: agent.Dial})
	must(t, err)
	t.Cleanup(func() { _ = workload.Close() })
	got, err := Identity{Workload: workload, SVID: svid}.assert(t.Context(), "", "https://as.example/token")
	must(t, err)
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(got.JWT, ".")[1])
	must(t, err)
	if !got.SVID || got.ID != string(svid.ID) || !strings.Contains(string(claims), `"https://as.example/token"`) {
		t.Errorf("%+v %s", got, claims)
	}
}
