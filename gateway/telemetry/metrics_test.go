package telemetry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func newMetrics(t *testing.T) *telemetry.Metrics {
	t.Helper()
	m, err := telemetry.New(telemetry.Deps{Bindings: []canonical.Binding{"a2a-v1", "mcp-v1"}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// scrape is what Prometheus sees.
func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d", w.Code)
	}
	return w.Body.String()
}

// touch uses every metric with values that are on the lists.
func touch(m *telemetry.Metrics) {
	m.Enter()
	m.Translated("a2a-v1", "mcp-v1", "ok", 3*time.Millisecond)
	m.Took("a2a-v1", "mcp-v1", telemetry.StageSend, time.Millisecond)
	m.CountLoss("a2a-v1", "mcp-v1", "L01", "carried")
	m.Verified(ect.L2, "ok")
	m.Issued(string(ect.ActTranslate), ect.L2)
	m.ByReference("mcp-v1", "full")
	m.RateLimited(limit.ScopeIdentity)
	m.Denied(policy.ConstraintHops)
	m.Upstream("echo", "mcp-v1", 20*time.Millisecond)
	m.UpstreamFailed("echo", problem.ReasonDNS)
	m.Agents().BreakerChanged("echo", "open")
	m.Agents().BreakerEscalated("probes")
	m.Agents().Lifecycles(map[string]int{"draining": 2})
}

// Names and labels are a promise: README.md.
func TestMetrics_NamesAndLabels(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	touch(m)
	got := scrape(t, m)
	for _, line := range []string{
		`aepb_translations_total{from="a2a-v1",result="ok",to="mcp-v1"} 1`,
		`aepb_translation_duration_seconds_count{from="a2a-v1",stage="total",to="mcp-v1"} 1`,
		`aepb_translation_duration_seconds_sum{from="a2a-v1",stage="total",to="mcp-v1"} 0.003`,
		`aepb_translation_duration_seconds_count{from="a2a-v1",stage="send",to="mcp-v1"} 1`,
		`aepb_translation_losses_total{code="L01",fate="carried",from="a2a-v1",to="mcp-v1"} 1`,
		`aepb_ects_verified_total{level="L2",result="ok"} 1`,
		`aepb_ects_issued_total{act="aepb:translate",level="L2"} 1`,
		`aepb_ects_by_reference_total{protocol="mcp-v1",reason="full"} 1`,
		`aepb_rate_limited_total{scope="identity"} 1`,
		`aepb_policy_denied_total{constraint="aepb.max_translation_hops"} 1`,
		`aepb_inflight 1`,
		`aepb_lifecycle_state{state="draining"} 2`,
		`aepb_breaker_state{agent="echo"} 2`,
		`aepb_breaker_transitions_total{agent="echo",to="open"} 1`,
		`aepb_breaker_escalations_total{reason="probes"} 1`,
		`aepb_upstream_request_duration_seconds_count{agent="echo",protocol="mcp-v1"} 1`,
		`aepb_upstream_failures_total{agent="echo",reason="dns"} 1`,
		`go_goroutines `,
		`process_start_time_seconds `,
		`go_build_info{`,
	} {
		if !strings.Contains(got, "\n"+line) {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestMetrics_Lint(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	touch(m)
	problems, err := promlint.New(strings.NewReader(scrape(t, m))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "aepb_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// No label takes a value that an outsider can invent.
func TestMetrics_LabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	for i := range 2000 {
		evil := fmt.Sprintf("evil-%d\xff\n", i)
		m.Translated(evil, evil, evil, 0)
		m.Took(evil, evil, telemetry.Stage(evil), 0)
		m.CountLoss(evil, evil, evil, evil)
		m.Verified(ect.Level(i), evil)
		m.Verified(ect.Level(-i), evil)
		m.Issued(evil, ect.Level(i))
		m.ByReference(evil, evil)
		m.RateLimited(limit.Scope(evil))
		m.Denied(policy.Constraint(evil))
		m.Upstream(evil, evil, 0)
		m.Upstream(fmt.Sprintf("agent-%d", i), "mcp-v1", 0)
	}
	got := scrape(t, m)
	if strings.Contains(got, "evil") {
		t.Error("an invented value became a label")
	}
	agents := strings.Count(got, "aepb_upstream_request_duration_seconds_count{")
	if agents != 512+2 { // the first 512, the rest, and those with an invalid name
		t.Errorf("%d series of agents", agents)
	}
	for _, want := range []string{
		`aepb_translations_total{from="other",result="other",to="other"} 2000`,
		`aepb_upstream_request_duration_seconds_count{agent="other",protocol="mcp-v1"} 1488`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
}

func TestMetrics_AbsentLabelValues(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	m.Translated("a2a-v1", "", "no_translation_path", 0)
	m.Upstream("", "mcp-v1", 0)
	m.Verified(0, "malformed")
	got := scrape(t, m)
	for _, want := range []string{
		`aepb_translations_total{from="a2a-v1",result="no_translation_path",to="none"} 1`,
		`{agent="none",protocol="mcp-v1"} 1`,
		`aepb_ects_verified_total{level="none",result="malformed"} 1`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
}

// What the layers can say is on the lists.
func TestMetrics_LabelListsAreComplete(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	for _, code := range problem.Codes() {
		m.Translated("a2a-v1", "mcp-v1", code, 0)
	}
	for _, entry := range canonical.Catalogue() {
		m.CountLoss("a2a-v1", "mcp-v1", string(entry.Code), string(entry.Fate))
	}
	for _, scope := range limit.Scopes() {
		m.RateLimited(scope)
	}
	for _, constraint := range policy.AllConstraints() {
		m.Denied(constraint)
	}
	for _, err := range []error{
		&ect.InvalidError{Reason: ect.ReasonReplay}, &ect.MalformedError{}, &ect.TooLargeError{}, &ect.ReplayedError{},
	} {
		m.Verified(ect.L2, telemetry.VerifyResult(fmt.Errorf("road: %w", err)))
	}
	m.Verified(ect.L2, telemetry.VerifyResult(nil))
	if got := scrape(t, m); strings.Contains(got, `="other"`) {
		t.Error("a value of ours became other")
	}
}

func TestInflight_CountsOpenRequests(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	first, second := m.Enter(), m.Enter()
	first()
	if !strings.Contains(scrape(t, m), "\naepb_inflight 1\n") {
		t.Error("want one under way")
	}
	second()
	if !strings.Contains(scrape(t, m), "\naepb_inflight 0\n") {
		t.Error("want none under way")
	}
}

// Two gateways in one process do not collide, and many goroutines may count.
func TestMetrics_RegistriesAreSeparate(t *testing.T) {
	t.Parallel()
	a, b := newMetrics(t), newMetrics(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				a.Upstream(fmt.Sprintf("agent-%d", (n+i)%50), "mcp-v1", 0)
			}
		})
	}
	wg.Wait()
	if strings.Contains(scrape(t, b), "aepb_upstream_request_duration_seconds_count") {
		t.Error("one gateway's series show at another")
	}
}

func TestNew_RequiresProtocols(t *testing.T) {
	t.Parallel()
	if _, err := telemetry.New(telemetry.Deps{}); err == nil {
		t.Error("no protocols: accepted")
	}
}

// BenchmarkMetrics_CountLoss is what a loss costs besides its ECT; an exchange has a dozen.
func BenchmarkMetrics_CountLoss(b *testing.B) {
	m, err := telemetry.New(telemetry.Deps{Bindings: []canonical.Binding{"a2a-v1", "mcp-v1"}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.CountLoss("a2a-v1", "mcp-v1", string(canonical.LossIDs), string(canonical.Carried))
	}
}

// TestUsage_RatioAndBytesOfEachKind: each look shows how much each kind takes then, of its bound and in bytes.
// Kinds that are on no list share one label, and what another process keeps has no bytes.
func TestUsage_RatioAndBytesOfEachKind(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	pool, err := quota.New(quota.Config{Resource: "streams", Total: 8, PerHolder: 8})
	if err != nil {
		t.Fatal(err)
	}
	empty := quota.Usage{Total: 1}
	m.Uses(func() map[string]telemetry.Use {
		return map[string]telemetry.Use{"streams": telemetry.UseOf(100, empty, pool.Usage()), "memory": {Bytes: -1, Ratio: 0.5}}
	})
	m.Uses(func() map[string]telemetry.Use {
		return map[string]telemetry.Use{"entries_of-a-caller": {Bytes: 1, Ratio: 0.25}, "invented": {Bytes: 2, Ratio: 0.125}}
	})
	for n := range 3 {
		got := scrape(t, m)
		for _, line := range []string{
			fmt.Sprintf(`aepb_state_usage_bytes{kind="streams"} %d`, 200*n), fmt.Sprintf(`aepb_state_usage_ratio{kind="streams"} %v`, float64(n)/4),
			`aepb_state_usage_ratio{kind="memory"} 0.5`, `aepb_state_usage_bytes{kind="other"} 3`, `aepb_state_usage_ratio{kind="other"} 0.25`,
		} {
			if !strings.Contains(got, "\n"+line+"\n") {
				t.Errorf("missing: %s", line)
			}
		}
		if strings.Contains(got, `aepb_state_usage_bytes{kind="memory"}`) || strings.Contains(got, "of-a-caller") {
			t.Error("the bytes of another process, or a label that is on no list")
		}
		if _, err := pool.Take("a", 2); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStateIgnored_CountsRejectedValues: each look shows how much of what the backend gave was not believed.
func TestStateIgnored_CountsRejectedValues(t *testing.T) {
	t.Parallel()
	count := uint64(0)
	m, err := telemetry.New(telemetry.Deps{
		Bindings: []canonical.Binding{"a2a-v1"}, Backend: "redis", BackendUp: func() bool { return true }, Ignored: func() uint64 { return count },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, count = range []uint64{0, 3} {
		if want := fmt.Sprintf("\naepb_state_ignored_total{backend=\"redis\"} %d\n", count); !strings.Contains(scrape(t, m), want) {
			t.Errorf("missing: %s", want)
		}
	}
	if strings.Contains(scrape(t, newMetrics(t)), "aepb_state_ignored_total") {
		t.Error("a backend that ignores nothing is said to")
	}
}

// TestRateLimited_ShareIsAScope: what a share refuses counts under a scope of its own.
func TestRateLimited_ShareIsAScope(t *testing.T) {
	t.Parallel()
	m := newMetrics(t)
	m.RateLimited(limit.ScopeShare)
	if want := "aepb_rate_limited_total{scope=\"share\"} 1"; !strings.Contains(scrape(t, m), want) {
		t.Errorf("missing: %s", want)
	}
}
