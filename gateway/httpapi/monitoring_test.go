package httpapi_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/httpapi"
)

// The listener for Prometheus and probes answers every Host, and has three pages.
func TestMonitoring_AnyHostThreePages(t *testing.T) {
	t.Parallel()
	ready := error(nil)
	deps := httpapi.MonitoringDeps{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a_metric 1\n") }),
		Ready:   func() error { return ready }, Logger: slog.New(slog.DiscardHandler),
	}
	handler, err := httpapi.Monitoring(deps)
	if err != nil {
		t.Fatal(err)
	}
	s := &surface{handler: handler}
	check := func(method, target string, status int, body string) {
		t.Helper()
		if w := s.do(method, target, "", nil, nil); w.Code != status || !strings.Contains(w.Body.String(), body) {
			t.Errorf("%s %s: got %d %q, want %d %q", method, target, w.Code, w.Body, status, body)
		}
	}
	for _, host := range []string{"127.0.0.1:9464", "10.1.2.3:9464", "[fd00::1]:9464", "aepb-gateway.monitoring.svc:9464", "evil.example"} {
		check("GET", "http://"+host+"/metrics", 200, "a_metric 1\n")
		check("GET", "http://"+host+"/healthz", 200, "ok\n")
		check("GET", "http://"+host+"/readyz", 200, "ready\n")
	}
	for _, path := range []string{"/", "/api/agents", "/metrics/", "/debug/pprof/", "/agents/calculator/mcp", "/.well-known/aepb", "/ects/x"} {
		check("GET", "http://127.0.0.1:9464"+path, 404, "not_found")
	}
	check("POST", "http://127.0.0.1:9464/metrics", 405, "method_not_allowed")
	ready = errors.New("state cannot be kept")
	check("GET", "http://127.0.0.1:9464/readyz", 503, "state cannot be kept\n")
	check("GET", "http://127.0.0.1:9464/healthz", 200, "ok\n")
	for _, bad := range []httpapi.MonitoringDeps{
		{Ready: deps.Ready, Logger: deps.Logger}, {Metrics: deps.Metrics, Logger: deps.Logger}, {Metrics: deps.Metrics, Ready: deps.Ready},
	} {
		if _, err := httpapi.Monitoring(bad); err == nil {
			t.Errorf("built from %+v", bad)
		}
	}
}
