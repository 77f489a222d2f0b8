package policy

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// The constraints of circuit breakers (ATD, Circuit Breaker Policy Configuration). They refuse
// no message by themselves.
const (
	constraintCircuitThreshold Constraint = "atd.circuit_threshold"
	constraintCircuitWindow    Constraint = "atd.circuit_window_s"
	constraintCascade          Constraint = "atd.cascade"    // a failure in a workflow begins a rollback (AEPB, Translation Failure Handling; R22)
	constraintCheckpoint       Constraint = "atd.checkpoint" // "required"; our own name in the name space of the draft (R22)
)

// Bounds of circuit breakers.
const (
	MaxCircuitWindow  = time.Hour
	MaxCircuitSamples = 10_000
	perMille          = 1000
	perMilleDigits    = 3
)

// Circuit is when a circuit breaker opens. A zero field takes its default.
type Circuit struct {
	Threshold int           // of a thousand calls, how many may fail: more open it; default 500
	Window    time.Duration // in which calls count, whole seconds up to [MaxCircuitWindow]; default 60 s
	Samples   int           // fewer calls in the window open nothing, at most [MaxCircuitSamples]; default 5 (R21)
}

// ParseThreshold reads a rate such as 0.5: above 0, at most 1, with at most three decimals.
// It returns it in parts of a thousand.
func ParseThreshold(text string) (int, bool) {
	whole, decimals, _ := strings.Cut(text, ".")
	if len(whole) != 1 || len(decimals) > perMilleDigits || strings.HasSuffix(text, ".") {
		return 0, false
	}
	n, err := strconv.ParseUint(whole+decimals+strings.Repeat("0", perMilleDigits-len(decimals)), 10, 16)
	return int(n), err == nil && n > 0 && n <= perMille
}

// parseCircuitWindow reads a number of seconds.
func parseCircuitWindow(raw json.RawMessage) (time.Duration, bool) {
	seconds, ok := integer(raw)
	window := time.Duration(seconds) * time.Second
	return window, ok && window >= time.Second && window <= MaxCircuitWindow
}

// stricter is the lower of two limits, of which zero is a default.
func stricter[T int | time.Duration](own, other T) T {
	if own == 0 {
		return other
	}
	return min(own, other)
}
