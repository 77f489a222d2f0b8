package stories

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// With state in Redis the gateway works; without Redis it refuses what it cannot
// remember, says so, and comes back by itself (architecture section 6).
func TestRedis_OutageAndRecovery(t *testing.T) {
	t.Parallel()
	server := gatewaytest.NewRedis(t)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{
		State: server.State(),
	}})
	ready := func() bool { return b.Send(t, b.Operator("GET", "/readyz", "", nil)).Status == http.StatusOK }
	metric := func(value string) bool {
		got := b.Send(t, gatewaytest.HTTPRequest{At: b.At.Admin + "/metrics", Method: http.MethodGet})
		text := string(got.Body)
		return strings.Contains(text, `aepb_state_backend_up{backend="redis"} `+value) && strings.Contains(text, `aepb_state_ignored_total{backend="redis"} 0`)
	}
	gatewaytest.Within(t, gatewaytest.Patience, "ready with a Redis that is there", func() bool { return ready() && metric("1") })
	call := func() gatewaytest.Reply {
		body := gatewaytest.AddBody(1)
		return b.Send(t, gatewaytest.HTTPRequest{Body: body, Tokens: []string{ecttest.Mint(t, b.Me, b.Recipe(body))}})
	}
	b.Right(t, call(), `"sum":2`) // one that is ready takes tokens that are made now
	b.Works(t)
	server.Kill()
	gatewaytest.Within(t, gatewaytest.Patience, "not ready without Redis", func() bool { return !ready() })
	if status, text := b.Monitor(t, "/readyz", ""); status != http.StatusServiceUnavailable || text != "state cannot be kept now: Redis at "+server.Address+" cannot be reached\n" {
		t.Errorf("ready at listen.metrics without Redis: %d %s", status, text)
	}
	began := time.Now()
	got := call()
	if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" || time.Since(began) > gatewaytest.Patience {
		t.Errorf("without Redis: got %d, Retry-After %q after %v: %s", got.Status, got.Header.Get("Retry-After"), time.Since(began), got.Body)
	}
	if !metric("0") {
		t.Error("the metric does not show it")
	}
	server.Run()
	began = time.Now()
	gatewaytest.Within(t, gatewaytest.Patience, "ready again", ready)
	// Uses of tokens may be lost, so ECTs are refused until one can be younger than
	// that (R6); the gateway is not ready before, and says why.
	b.Right(t, call(), `"sum":2`)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the first translation took %v after the start of redis, expected about two seconds", took)
	}
	got = b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1), Header: map[string]string{"A2A-Version": "1.0"}})
	b.Right(t, got, `"sum":2`)
}

// Without Redis and without a journal every door refuses, and names what is lacking.
func TestDoors_NameTheGuaranteeThatRedisIsNeededFor(t *testing.T) {
	t.Parallel()
	server := gatewaytest.NewRedis(t)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{
		State: server.State(),
	}})
	add := gatewaytest.ModernCall("concierge", `{"message":"x"}`)
	endpoints := map[string]struct {
		message func() gatewaytest.HTTPRequest
		lacks   state.Guarantee
	}{
		"A2A": {func() gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1), Header: map[string]string{"A2A-Version": "1.0"}}
		}, state.LacksRecording},
		"MCP": {func() gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: add, Header: gatewaytest.Mirror("tools/call", "concierge")}
		}, state.LacksRecording},
		"an MCP session": {func() gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: gatewaytest.InitializeBody, Header: gatewaytest.MCPHeader("2025-06-18")}
		}, state.LacksShared},
		"A2A, a task": {func() gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t"}}`, Header: map[string]string{"A2A-Version": "1.0"}}
		}, state.LacksShared},
		"translate, with an ECT": {func() gatewaytest.HTTPRequest {
			body := gatewaytest.AddBody(1)
			return gatewaytest.HTTPRequest{Body: body, Tokens: []string{ecttest.Mint(t, b.Me, b.Recipe(body))}}
		}, state.LacksReading},
		"AINP": {func() gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: "/agents/calculator/ainp", Body: gatewaytest.EnvelopeWith()(t, b)}
		}, state.LacksReplay},
	}
	b.Right(t, b.Send(t, endpoints["A2A"].message()), `"sum":2`)
	server.Kill()
	for name, tc := range endpoints {
		got := b.Send(t, tc.message())
		wait := got.Header.Get("Retry-After")
		if got.Status != http.StatusServiceUnavailable || wait == "" || !strings.Contains(string(got.Body), string(tc.lacks)+"; try again in "+wait+" s") {
			t.Errorf("%s: %d, Retry-After %q: %s\nwant %q", name, got.Status, wait, got.Body, tc.lacks)
		}
	}
	if text := string(b.AskUACP(t, "calculator", gatewaytest.FrameOf(t, uacp.FormBare, gatewaytest.Addition(1)))); !strings.Contains(text, string(state.LacksRecording)+"; try again in 1 s") {
		t.Errorf("µACP: %s", text)
	}
}
