package breaker_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// ATD-36, ATD-38: the claims of the draft's two figures, and exact numbers.
func TestChange_Claims(t *testing.T) {
	t.Parallel()
	const agent, second = "spiffe://example.com/agent/b", time.Second
	open := func(failures, samples int, rate string) (breaker.Change, ect.Act, map[string]string) {
		return breaker.Change{To: breaker.Open, Failures: failures, Samples: samples, Window: 60 * second, Cooldown: 30 * second},
			ect.ActCircuitOpen,
			map[string]string{"atd.downstream_agent": `"` + agent + `"`, "atd.error_rate": rate, "atd.window_s": "60"}
	}
	check := func(c breaker.Change, act ect.Act, want map[string]string) {
		t.Helper()
		gotAct, ext, ok := c.Claims(agent)
		var got map[string]string
		for key, value := range ext {
			if got == nil {
				got = map[string]string{}
			}
			got[key] = string(value)
		}
		if diff := cmp.Diff(want, got); diff != "" || gotAct != act || ok != (want != nil) {
			t.Errorf("%+v: %s, %t\n%s", c, gotAct, ok, diff)
		}
	}
	check(open(3, 4, "0.75"))
	check(open(5, 5, "1"))
	check(open(2, 3, "0.667"))
	check(open(1, 3, "0.334"))      // rounded up …
	check(open(501, 1001, "0.501")) // … or it would not be above a half
	check(open(1, 1_000_000, "0.001"))
	check(breaker.Change{From: breaker.HalfOpen, To: breaker.Closed, Cooldown: 30 * second}, ect.ActCircuitClose,
		map[string]string{"atd.downstream_agent": `"` + agent + `"`, "atd.cooldown_s": "30"})
	for _, silent := range []breaker.Change{
		{},
		{From: breaker.Open, To: breaker.Open},
		{From: breaker.Open, To: breaker.HalfOpen, Cooldown: 30 * second},
		{From: breaker.HalfOpen, To: breaker.Open, Cooldown: 30 * second}, // the probe taught nothing
		{From: breaker.Closed, To: breaker.Open},                          // adopted
		{From: breaker.Open, To: breaker.Closed},                          // adopted
	} {
		check(silent, "", nil)
	}
}

// TestEscalationClaims_AgentAndReason: who needs a human, and why.
func TestEscalationClaims_AgentAndReason(t *testing.T) {
	t.Parallel()
	act, ext := breaker.EscalationClaims("spiffe://example.org/calculator", "probes")
	if act != ect.ActEscalate || string(ext[ect.ExtDownstreamAgent]) != `"spiffe://example.org/calculator"` || string(ext[ect.ExtEscalation]) != `"probes"` || len(ext) != 2 {
		t.Errorf("%s %s", act, ext)
	}
}
