package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func TestMetricsListener_AnswersByAnyNameAndHasNothingElse(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.Works(t)
	for _, host := range []string{"", "10.1.2.3:9464", "aepb-gateway.monitoring.svc:9464"} {
		for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n", "/metrics": "\naepb_translations_total{"} {
			if status, text := b.Monitor(t, path, host); status != http.StatusOK || !strings.Contains(text, want) {
				t.Errorf("%s as %q: got %d %s", path, host, status, text)
			}
		}
	}
	for _, path := range []string{"/api/agents", "/agents/calculator/a2a", "/.well-known/aepb", "/debug/pprof/"} {
		if status, text := b.Monitor(t, path, ""); status != http.StatusNotFound {
			t.Errorf("%s: got %d %s", path, status, text)
		}
	}
	if b.Env.Guards.Webhooks.Judge(strings.Replace(b.At.Metrics, "http://", "https://", 1)) == nil {
		t.Error("webhooks and documents may be fetched from listen.metrics")
	}
	_, page := b.Monitor(t, "/metrics", "")
	if want := fmt.Sprintf("\naepb_build_info{commit=%q,version=%q} 1\n", release.Current().Commit, release.Version); !strings.Contains(page, want) {
		t.Errorf("missing: %s", want)
	}
}

// running is a gateway that serve runs until the test ends, and what it printed.
func running(t *testing.T, file string, lines int) (ready []string, logs *gatewaytest.Journal) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	out, in := io.Pipe()
	logs = &gatewaytest.Journal{}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := serve(ctx, file, in, logs)
		_ = in.CloseWithError(io.EOF)
		if err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() { stop(); _ = out.Close(); wg.Wait() })
	read := bufio.NewScanner(out)
	for range lines {
		read.Scan()
		ready = append(ready, read.Text())
	}
	return ready, logs
}

// TestServe_LogsWhatIsInForce: one line says which program runs, with which file,
// state and identity.
func TestServe_LogsWhatIsInForce(t *testing.T) {
	t.Parallel()
	dir, file := gatewaytest.Operated(t, "state: {path: DIR/state.db}\n")
	text, err := os.ReadFile(file)
	gatewaytest.Must(t, err)
	text = []byte(strings.NewReplacer("DIR/state.db", filepath.Join(dir, "state.db"), "listen: {", "listen: {metrics: \"127.0.0.1:0\", ").Replace(string(text)))
	gatewaytest.Must(t, os.WriteFile(file, text, 0o600))
	svid, err := identity.LoadSVID(filepath.Join(dir, "gateway.pem"), filepath.Join(dir, "gateway-key.pem"))
	gatewaytest.Must(t, err)
	ready, logs := running(t, file, 3)
	at, ok := strings.CutPrefix(ready[2], "ready metrics ")
	if !ok {
		t.Fatalf("got %q", ready)
	}
	b := &gatewaytest.Fixture{At: server.Addresses{Metrics: at}}
	gatewaytest.Within(t, gatewaytest.Patience, "the gateway is ready", func() bool {
		status, _ := b.Monitor(t, "/readyz", "")
		return status == http.StatusOK
	})
	var line struct {
		Level, Msg, Version, Commit, Config, State, Identity string
		Expires                                              time.Time `json:"identity_expires"`
	}
	for found := range strings.Lines(logs.String()) {
		if strings.Contains(found, `"msg":"started"`) {
			gatewaytest.Must(t, json.Unmarshal([]byte(found), &line))
		}
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(text))[:12]; line.Config != want {
		t.Errorf("configuration %q, want %q", line.Config, want)
	}
	if line.Level != "INFO" || line.Version != release.Version || line.Commit != release.Current().Commit || line.Commit == "" || line.State != "bolt" {
		t.Errorf("got %+v", line)
	}
	if line.Identity != string(svid.ID) || !line.Expires.Equal(svid.Chain[0].NotAfter) {
		t.Errorf("identity %s until %v, want %s until %v", line.Identity, line.Expires, svid.ID, svid.Chain[0].NotAfter)
	}
}

func TestVersion_SaysTheCommit(t *testing.T) {
	t.Parallel()
	stamp := func(settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.5", Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef"}
	for _, tc := range []struct {
		info   *debug.BuildInfo
		commit string
	}{
		{stamp(), "unknown"},
		{stamp(revision), "0123456789abcdef"},
		{stamp(revision, debug.BuildSetting{Key: "vcs.modified", Value: "false"}), "0123456789abcdef"},
		{stamp(debug.BuildSetting{Key: "vcs.modified", Value: "true"}, revision), "0123456789abcdef-modified"},
	} {
		if got := release.From(tc.info); got.Commit != tc.commit || got.GoVersion != "go1.26.5" {
			t.Errorf("got %+v, want %s", got, tc.commit)
		}
	}
	text := "aepb-gateway " + release.Version + "\ncommit " + release.Current().Commit + "\n" + runtime.Version() + "\n"
	for args, want := range map[string]string{
		"version": text, "--version": text, "-v": text,
		"version -o json": `{"version":"` + release.Version + `","commit":"` + release.Current().Commit + `","go":"` + runtime.Version() + `"}` + "\n",
	} {
		var out strings.Builder
		cmd := command(new(bool))
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(&out)
		gatewaytest.Must(t, cmd.ExecuteContext(t.Context()))
		if out.String() != want {
			t.Errorf("%s: got %q, want %q", args, out.String(), want)
		}
	}
}

func TestVersion_IsThatOfTheTag(t *testing.T) {
	t.Parallel()
	for stamped, want := range map[string]string{
		"": release.Version, "(devel)": release.Version, "v0.2.0": "0.2.0", "v1.0.0-rc.1": "1.0.0-rc.1",
		"v0.2.0+dirty": release.Version, "v0.0.0-20261128101112-0123456789ab": release.Version,
		"v0.2.1-0.20261128101112-0123456789ab": release.Version, "v0.2.1-rc.1.0.20261128101112-0123456789ab+dirty": release.Version,
	} {
		if got := release.From(&debug.BuildInfo{Main: debug.Module{Version: stamped, Sum: "h1:x"}}); got.Version != want || got.Sum != "h1:x" {
			t.Errorf("%q: got %+v, want %s", stamped, got, want)
		}
	}
}

// TestMetrics_UsageOfEveryBound: whatever has a bound shows what it takes, in bytes and as
// a part of the bound, and what was used shows as used.
func TestMetrics_UsageOfEveryBound(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.Works(t)
	b.Initialize(t, b.Client, "concierge")
	body, write := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.At.Public+gatewaytest.EndpointA2A, body)
	gatewaytest.Must(t, err)
	request.Header = http.Header{"Content-Type": {"application/json"}, "A2a-Version": {"1.0"}}
	var sending sync.WaitGroup
	sending.Go(func() {
		if response, err := b.Client.Do(request); err == nil {
			_ = response.Body.Close()
		}
	})
	defer sending.Wait()
	defer func() { gatewaytest.Must(t, write.Close()) }()
	_, err = write.Write(make([]byte, 1<<20+1)) // which it holds until the request is whole
	gatewaytest.Must(t, err)
	var page string
	gatewaytest.Within(t, gatewaytest.Patience, "the request is held", func() bool {
		_, page = b.Monitor(t, "/metrics", "")
		return gatewaytest.NumberIn(t, page, `aepb_state_usage_bytes{kind="in_flight"}`) >= 1<<20
	})
	for _, kind := range []string{
		"tokens", "replays", "answers", "conversations", "entries", "entries_session", "requests", "streams", "in_flight",
		"background", "connections", "uacp_connections", "ainp_sockets",
	} {
		for _, name := range []string{"aepb_state_usage_bytes", "aepb_state_usage_ratio"} {
			if !strings.Contains(page, "\n"+name+"{kind=\""+kind+"\"} ") {
				t.Errorf("%s of %s is missing", name, kind)
			}
		}
	}
	for kind, least := range map[string]float64{"tokens": 1000, "replays": 80, "entries_session": 1, "requests": 112 << 10, "in_flight": 1 << 20, "connections": 48 << 10} {
		for name, least := range map[string]float64{"aepb_state_usage_bytes": least, "aepb_state_usage_ratio": 1e-9} {
			if got := gatewaytest.NumberIn(t, page, name+"{kind=\""+kind+"\"}"); got < least {
				t.Errorf("%s of %s is %v, want at least %v", name, kind, got, least)
			}
		}
	}
}
