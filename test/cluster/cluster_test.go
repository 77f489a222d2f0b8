package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// TestLong_Cluster runs the three replicas that the chart renders as processes, with
// Prometheus and the alerts of the chart, under callers that try a call twice at most. A
// rolling restart with the times of the chart loses nothing and raises no alert; one
// replica that is killed loses nothing and raises AepbDown alone.
func TestLong_Cluster(t *testing.T) {
	t.Parallel()
	chart := rendered(t)
	ctx := t.Context()
	c, err := start(ctx, plan{dir: t.TempDir(), root: root, config: chart.config})
	t.Cleanup(func() { must(t, ended(ctx, c.close)) })
	must(t, err)
	if c.prometheus == "" {
		t.Fatal("Prometheus is needed: make tools")
	}
	monitor := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	must(t, until(ctx, time.Minute, "Prometheus sees three replicas up", func() bool {
		return ask(t, monitor, c.prometheus+"/api/v1/query?query="+url.QueryEscape("count(up == 1)")).value() == "3"
	}))
	if firing := alerts(t, monitor, c, "firing"); len(firing) > 0 {
		t.Errorf("a new cluster raises %q", firing)
	}

	calls := newCalls(t, c)
	for _, r := range c.replicas {
		calls.succeed(t, 4) // before the next one
		if !wait.Pause(ctx, chart.preStop) {
			t.Fatal(ctx.Err())
		}
		within, cancel := context.WithTimeout(ctx, chart.grace-chart.preStop)
		err := r.process.Stop(within)
		cancel()
		must(t, err)
		must(t, c.run(ctx, r))
	}
	calls.succeed(t, 4)
	if firing := alerts(t, monitor, c, "firing"); len(firing) > 0 {
		t.Errorf("a rolling restart raises %q", firing)
	}

	killed := c.replicas[1]
	must(t, killed.process.Kill())
	calls.succeed(t, 12)
	must(t, until(ctx, 5*time.Minute, "AepbDown fires", func() bool { return slices.Contains(alerts(t, monitor, c, "firing"), "AepbDown") }))
	if firing := alerts(t, monitor, c, "firing"); !slices.Equal(firing, []string{"AepbDown"}) {
		t.Errorf("a killed replica raises %q, want AepbDown alone", firing)
	}
	must(t, c.run(ctx, killed))
	must(t, until(ctx, time.Minute, "AepbDown ends", func() bool { return len(alerts(t, monitor, c, "firing")) == 0 }))
	total, again := calls.end(t)
	t.Logf("%d calls, %d of them right at the second try", total, again)
}

// until is wait.Until with a limit of its own.
func until(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !done() {
		if !wait.Pause(ctx, time.Second) {
			return fmt.Errorf("not within %s: %s", limit, what)
		}
	}
	return nil
}

// answer is what Prometheus says to a query, or about its alerts.
type answer struct {
	Data struct {
		Result []struct{ Value [2]any }
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
}

// value is that of the only result.
func (a answer) value() string {
	if len(a.Data.Result) != 1 {
		return ""
	}
	text, _ := a.Data.Result[0].Value[1].(string)
	return text
}

// ask is what Prometheus answers; nothing before it is ready.
func ask(t *testing.T, client *http.Client, at string) (out answer) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
	must(t, err)
	response, err := client.Do(request)
	must(t, err)
	if response.StatusCode == http.StatusOK {
		err = json.NewDecoder(response.Body).Decode(&out)
	}
	must(t, errors.Join(err, response.Body.Close()))
	return out
}

// alerts are the names of the alerts in a state, each once.
func alerts(t *testing.T, client *http.Client, c *cluster, state string) []string {
	t.Helper()
	names := []string{}
	for _, alert := range ask(t, client, c.prometheus+"/api/v1/alerts").Data.Alerts {
		if alert.State == state {
			names = append(names, alert.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pace is a caller's pause between two calls, each of up to four requests: together the
// callers, one identity, stay below limits.rate (50 a second).
const pace = 400 * time.Millisecond

// calls are four callers: two with the A2A SDK, two with the
// MCP SDK.
type calls struct {
	stop context.CancelFunc
	work sync.WaitGroup
	done chan struct{} // one for each right answer; the test takes them

	mu           sync.Mutex
	total, again int
	failures     []error
}

func newCalls(t *testing.T, c *cluster) *calls {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "client", "client.pem"), filepath.Join(c.dir, "client", "client-key.pem"))
	must(t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read(t, filepath.Join(c.dir, "ca.pem"))) {
		t.Fatal("no CA")
	}
	ctx, stop := context.WithCancel(t.Context())
	all := &calls{stop: stop, done: make(chan struct{})}
	for n := range 4 {
		transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true}
		client := &http.Client{Transport: transport}
		all.work.Go(func() {
			defer transport.CloseIdleConnections()
			for i := 0; wait.Pause(ctx, pace); i++ {
				all.once(ctx, func() error { return call(ctx, client, c.public, n, i) })
			}
		})
	}
	t.Cleanup(func() { all.stop(); all.work.Wait() })
	return all
}

// once makes a call, and a second time if the first fails.
func (c *calls) once(ctx context.Context, call func() error) {
	first := call()
	err := first
	if first != nil && ctx.Err() == nil {
		err = call()
	}
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	c.total++
	switch {
	case err != nil:
		c.failures = append(c.failures, errors.Join(first, err))
	case first != nil:
		c.again++
	}
	c.mu.Unlock()
	if err == nil {
		select {
		case c.done <- struct{}{}:
		default:
		}
	}
}

// succeed waits for n more right answers.
func (c *calls) succeed(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-c.done:
		case <-time.After(time.Minute):
			t.Fatal("no call has succeeded for a minute")
		}
	}
}

// end stops the callers; a call that failed twice is a failure of the test.
func (c *calls) end(t *testing.T) (total, again int) {
	t.Helper()
	c.stop()
	c.work.Wait()
	for _, err := range c.failures[:min(len(c.failures), 5)] {
		t.Error(err)
	}
	if len(c.failures) > 0 {
		t.Errorf("%d of %d calls failed twice", len(c.failures), c.total)
	}
	return c.total, c.again
}

// call is one call of a caller, whose answer only this call can get.
func call(ctx context.Context, client *http.Client, public string, n, i int) error {
	if n%2 == 0 {
		input := map[string]any{"skill": "add", "input": map[string]int{"a": n * 1_000_000, "b": i}}
		reply, err := peers.A2ACall(ctx, client, public+"/agents/"+calculator, a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(input)))
		if err != nil {
			return err
		}
		text, err := json.Marshal(reply.Task)
		if want := fmt.Sprint(n*1_000_000 + i); err != nil || reply.State() != a2a.TaskStateCompleted || !strings.Contains(string(text), want) {
			return fmt.Errorf("the sum %s is not in %s", want, text)
		}
		return nil
	}
	word := fmt.Sprintf("word %d %d", n, i)
	args, err := json.Marshal(map[string]string{"message": word})
	if err != nil {
		return err
	}
	reply, err := peers.MCPCall(ctx, client, public+"/agents/"+concierge+"/mcp", false, concierge, args)
	if err != nil {
		return err
	}
	if reply.Result.IsError || reply.Text() != "You said: "+word {
		return fmt.Errorf("asked %q, got %q", word, reply.Text())
	}
	return nil
}
