package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle"
)

const agentID = "spiffe://example.com/agent/pricing"

func texts(ext ect.Ext) map[string]string {
	out := map[string]string{}
	for key, value := range ext {
		out[key] = string(value)
	}
	return out
}

// TestClaims_OfTheDraft: the example of the draft, and what was forced.
func TestClaims_OfTheDraft(t *testing.T) {
	t.Parallel()
	c := lifecycle.Change{Agent: "pricing", To: lifecycle.Deprecated, Reason: "Replaced by pricing-v3"}
	want := map[string]string{
		"aepb.agent_id": `"` + agentID + `"`, "aepb.from_state": `"active"`, "aepb.to_state": `"deprecated"`,
		"aepb.reason": `"Replaced by pricing-v3"`,
	}
	act, ext := c.Claims(agentID)
	if act != "aepb:lifecycle_change" {
		t.Error(act)
	}
	if diff := cmp.Diff(want, texts(ext)); diff != "" {
		t.Error(diff)
	}
	c.Forced = true
	want["aepb.forced"] = "true"
	if _, ext = c.Claims(agentID); !cmp.Equal(want, texts(ext)) {
		t.Error(cmp.Diff(want, texts(ext)))
	}
}

// TestClaims_FitEveryDialect: the longest reason must not keep a transition from being signed.
func TestClaims_FitEveryDialect(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{strings.Repeat("\U0001f500", 500), strings.Repeat(`"`, 500)} {
		_, ext := lifecycle.Change{From: "draining", To: "retired", Reason: reason, Forced: true}.Claims(agentID)
		size := 2
		for key, value := range ext {
			size += len(key) + len(value) + 4
		}
		if size > ect.MaxDualExt {
			t.Errorf("%d bytes", size)
		}
	}
}

func TestShutdown_OfAgentAndProcess(t *testing.T) {
	t.Parallel()
	act, ext := lifecycle.Shutdown(agentID, "")
	if want := map[string]string{"aepb.agent_id": `"` + agentID + `"`}; act != "aepb:shutdown" || !cmp.Equal(want, texts(ext)) {
		t.Error(act, texts(ext))
	}
	_, ext = lifecycle.Shutdown(agentID, "gw-1")
	if texts(ext)["aepb.instance"] != `"gw-1"` {
		t.Error(texts(ext))
	}
}
