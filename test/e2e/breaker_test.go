package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// faulty stands before an agent: it counts what reaches it. While it is ill it answers with 500, ends the
// connection, and begins no other one, since it speaks TLS 1.2 alone.
type faulty struct {
	*httptest.Server
	ill           atomic.Bool
	calls, others atomic.Int64 // calls of tools, and all other requests
}

func newFaulty(t *testing.T, trust *devgateway.Trust, behind string) *faulty {
	t.Helper()
	target, err := url.Parse(behind)
	must(t, err)
	conf, err := trust.PeerTLS("frail")
	must(t, err)
	via := trust.Client()
	d := &faulty{}
	proxy := &httputil.ReverseProxy{
		Transport: via.Transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host },
	}
	d.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if strings.Contains(string(body), `"tools/call"`) {
			d.calls.Add(1)
		} else {
			d.others.Add(1)
		}
		if d.ill.Load() {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		proxy.ServeHTTP(w, r)
	}))
	old := conf.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if d.ill.Load() {
			return old, nil
		}
		return nil, nil //nolint:nilnil // as it is
	}
	d.TLS = conf
	d.StartTLS()
	t.Cleanup(func() {
		d.Close()
		via.CloseIdleConnections()
	})
	return d
}

// breakerAt is what a replica says of the agent's breaker; empty: it was never open.
func (f *fleet) breakerAt(ctx context.Context, r *replica) (string, error) {
	got, err := ask(ctx, f.operator, http.MethodGet, r.Admin+"/api/breakers", "", nil)
	var list struct {
		Breakers []struct{ Agent, State string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(got.body), &list)
	}
	if err != nil || len(list.Breakers) == 0 {
		return "", err
	}
	return list.Breakers[0].State, nil
}

func (f *fleet) callFrail(t *testing.T, r *replica, message string) answer {
	t.Helper()
	got, err := ask(t.Context(), f.caller, http.MethodPost, r.Process.Public+"/agents/frail/mcp", mcpCall(message), mcpHeader())
	if err != nil {
		t.Errorf("%s: %v", r.name, err)
	}
	return got
}

// circuitOpen is what MCP's error holds while the breaker is open.
const circuitOpen = `"code":"circuit_open","status":503`

// breakerCallers call at the same time when the cool-down is over.
const breakerCallers = 60

// TestLong_BreakerThreeReplicasOneProbe: three replicas know that an agent fails. When the cool-down is
// over, one of 60 calls at the same time reaches it. It answers, and all replicas serve again.
func TestLong_BreakerThreeReplicasOneProbe(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"an agent that was known": true, "an agent that was never reached": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trust, err := devgateway.NewTrust("prod.example")
			must(t, err)
			worker := newWorker(t, trust)
			agent := newFaulty(t, trust, worker.server.URL())
			agent.ill.Store(!known)
			f := newFleet(t, trust, 3, map[string]string{"frail": agent.URL + "/mcp"})
			for _, r := range f.replicas {
				if got := f.callFrail(t, r, "well"); strings.Contains(got.body, done("well")) != known {
					t.Fatalf("%s: %d %q", r.name, got.status, got.body)
				}
			}
			agent.ill.Store(true)
			wait.Pause(t.Context(), time.Until(f.opens(t)))
			agent.ill.Store(false)
			agent.calls.Store(0)
			agent.others.Store(0)
			describes := int64(2) // questions of the one that probes, before its call
			if known {
				describes = 0
			}
			f.probed(t, agent, worker.letGo, describes)
		})
	}
}

// opens calls until the breaker is open at every replica and callers learn when to come back,
// and returns when the last of them lets a call through.
func (f *fleet) opens(t *testing.T) (again time.Time) {
	t.Helper()
	var callers sync.WaitGroup
	var mu sync.Mutex
	for _, r := range f.replicas {
		callers.Go(func() {
			var got answer
			err := wait.Until(t.Context(), "the breaker opens at "+r.name, func() bool {
				got = f.callFrail(t, r, "ill")
				return strings.Contains(got.body, circuitOpen)
			})
			if err != nil {
				t.Error(err)
			}
			seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
			if err != nil || seconds < 1 || seconds > 30 {
				t.Errorf("%s: %d, Retry-After %q, %q", r.name, got.status, got.header.Get("Retry-After"), got.body)
			}
			if state, err := f.breakerAt(t.Context(), r); err != nil || state != "open" {
				t.Errorf("%s lists %q: %v", r.name, state, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if at := time.Now().Add(time.Duration(seconds) * time.Second); at.After(again) {
				again = at
			}
		})
	}
	callers.Wait()
	return again
}

// probed has many call at once: one call reaches the agent, and when it has its answer, all
// replicas serve.
func (f *fleet) probed(t *testing.T, agent *faulty, letGo chan struct{}, describes int64) {
	t.Helper()
	begin, answers := make(chan struct{}), make(chan answer, breakerCallers)
	var callers sync.WaitGroup
	for i := range breakerCallers {
		callers.Go(func() {
			<-begin
			answers <- f.callFrail(t, f.replicas[i%len(f.replicas)], "hold")
		})
	}
	close(begin)
	patient, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range breakerCallers - 1 { // while the one is under way
		select {
		case got := <-answers:
			if !strings.Contains(got.body, circuitOpen) || got.header.Get("Retry-After") == "" {
				t.Errorf("beside the probe: %d, Retry-After %q, %q", got.status, got.header.Get("Retry-After"), got.body)
			}
		case <-patient.Done():
			t.Error("more than one call is under way")
		}
	}
	if err := wait.Until(patient, "the probe reaches the agent", func() bool { return agent.calls.Load() > 0 }); err != nil {
		t.Error(err) // those that were refused may have heard that first
	}
	if calls, others := agent.calls.Load(), agent.others.Load(); calls != 1 || others != describes {
		t.Errorf("%d calls and %d questions reached the agent, want the probe alone and %d", calls, others, describes)
	}
	close(letGo)
	answered := time.Now()
	callers.Wait()
	if got := <-answers; !strings.Contains(got.body, done("hold")) {
		t.Errorf("the probe: %d %q", got.status, got.body)
	}
	if n := agent.calls.Load(); n != 1 {
		t.Errorf("%d calls reached the agent, want the probe alone", n)
	}
	for _, r := range f.replicas {
		callers.Go(func() {
			err := wait.Until(t.Context(), r.name+" serves again", func() bool {
				return strings.Contains(f.callFrail(t, r, "well").body, done("well"))
			})
			took := time.Since(answered)
			if state, failed := f.breakerAt(t.Context(), r); err != nil || failed != nil || took > 3*time.Second || state != "closed" {
				t.Errorf("%s serves again %v after the probe, and its breaker is %q: %v, %v", r.name, took, state, err, failed)
			}
		})
	}
	callers.Wait()
}
