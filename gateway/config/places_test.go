package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
)

// TestSchedule_OfTheFile: what the file says of calls that wait is what the scheduler gets; an agent without concurrency
// has no queue.
func TestSchedule_OfTheFile(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(inAgent("concurrency: 4\n    longest_wait: 90s\n  free:\n    capability: https://free.example/card\n" +
		"policy:\n  priorities:\n    - {callers: [\"spiffe://example.com/batch/*\"], agents: [bookings], class: low}\n    - {class: high}\n")))
	if err != nil {
		t.Fatal(err)
	}
	r := c.Policy.Schedule(c.Agents)
	if got := r.Agents["bookings"]; len(r.Agents) != 1 || got != (schedule.Config{Places: 4, Longest: 90 * time.Second}) {
		t.Errorf("agents: %+v", r.Agents)
	}
	if len(r.Priorities) != 2 || !slices.Equal(r.Priorities[0].Callers, []ect.Identity{"spiffe://example.com/batch/*"}) || r.Priorities[0].Class != schedule.Low ||
		!slices.Equal(r.Priorities[0].Agents, []string{"bookings"}) || r.Priorities[1].Class != schedule.High {
		t.Errorf("priorities: %+v", r.Priorities)
	}
}

// TestSchedule_Mistakes: what cannot be followed is refused, with its place and what was expected.
func TestSchedule_Mistakes(t *testing.T) {
	t.Parallel()
	rule := func(text string) string { return "timeout: 5s\npolicy:\n  priorities: [" + text + "]\n" }
	for _, c := range []struct{ keys, path, reason string }{
		{"concurrency: 0", "concurrency", "between 1 and 10000"},
		{"concurrency: 10001", "concurrency", "between 1 and 10000"},
		{"concurrency: many", "", "concurrency"},
		{"longest_wait: 10s", "longest_wait", "without concurrency"},
		{"concurrency: 1\n    longest_wait: 999ms", "longest_wait", "between 1s and 1h"},
		{"concurrency: 1\n    longest_wait: 61m", "longest_wait", "between 1s and 1h"},
		{rule("{class: urgent}"), "priorities[0].class", `"urgent" is no class: expected critical, high, normal, low`},
		{rule("{class: low}, {agents: [bookings]}"), "priorities[1].class", `"" is no class`},
		{rule("{class: low, agents: [nowhere]}"), "priorities[0].agents[0]", `no agent "nowhere"`},
		{rule("{class: low, callers: [example.com]}"), "priorities[0].callers[0]", "not a SPIFFE id"},
		{rule(`{class: low, callers: ["spiffe://example.com/a#invoke"]}`), "priorities[0].callers[0]", "expected no #"},
		{rule(strings.Repeat("{class: low}, ", 257)), "priorities", "at most 256"},
	} {
		_, err := config.Parse([]byte(inAgent(c.keys)))
		if err == nil || !strings.Contains(err.Error(), c.path) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%.60s: got %v, want %s: %s", c.keys, err, c.path, c.reason)
		}
	}
}
