package config

import (
	"net/url"
	"time"

	"github.com/aepb/aepb-gateway/policy"
)

// checkCircuit finds what no circuit breaker can follow (ATD, Circuit Breaker Policy Configuration).
func (p Policy) checkCircuit(say func(path, reason string)) {
	if _, ok := policy.ParseThreshold(p.CircuitThreshold); p.CircuitThreshold != "" && !ok {
		say("$.policy.circuit_threshold", "a rate above 0 and at most 1 with up to three decimals, such as 0.5")
	}
	window := time.Duration(p.CircuitWindow)
	if window != 0 && (window < time.Second || window > policy.MaxCircuitWindow || window%time.Second != 0) {
		say("$.policy.circuit_window", "whole seconds between 1s and 1h")
	}
	if u, err := url.Parse(p.EscalationURL); p.EscalationURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
		say("$.policy.escalation_url", "a URL that begins with https:// and has no user")
	}
	if p.CircuitSamples < 0 || p.CircuitSamples > policy.MaxCircuitSamples {
		say("$.policy.circuit_samples", "must be between 1 and 10000")
	}
}
