package stories

import (
	"cmp"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// peerWith has gateways list each other in their configurations.
func peerWith(t *testing.T, gateways ...*gatewaytest.Fixture) {
	t.Helper()
	for _, b := range gateways {
		c := b.Settings()
		c.Peers = map[string]config.Peer{}
		for _, other := range gateways {
			if other != b {
				c.Peers[string(other.Dev.Gateway.ID)] = config.Peer{Gateway: other.At.Public + "/aepb/translate", Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/*"}}
			}
		}
		gatewaytest.Must(t, b.Reload(t.Context(), c))
	}
}

// escalated reads the metrics of a gateway until it has escalated for a reason, and returns the count.
func escalated(t *testing.T, b *gatewaytest.Fixture, reason string) string {
	t.Helper()
	operator := b.Caller(t, b.SVID(t, gatewaytest.ApproverPath))
	for end := time.Now().Add(gatewaytest.Patience); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		got := b.Send(t, gatewaytest.HTTPRequest{Via: operator, Method: http.MethodGet, At: b.At.Admin + "/metrics"})
		if _, after, found := strings.Cut(string(got.Body), `aepb_breaker_escalations_total{reason="`+reason+`"} `); found {
			count, _, _ := strings.Cut(after, "\n")
			return count
		}
	}
	t.Fatalf("%s has not escalated", b.Dev.Gateway.ID)
	return ""
}

// TestBreaker_Coordinated: three gateways that read each other's breakers, and one agent that dies: each gateway
// calls a human once, within a minute, with a token that verifies (ATD, Coordinated Circuit Breaking; R21).
func TestBreaker_Coordinated(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second, third := first.Beside(t, "gateway-2", config.Config{}), first.Beside(t, "gateway-3", config.Config{})
	all := []*gatewaytest.Fixture{first, second, third}
	peerWith(t, all...)
	svid := first.SVID(t, "/dying")
	at := first.Serve(t, "dying", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.HangsUp}, gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
	second.List(t, "another-name", "mcp-v1", at, gatewaytest.Host{ID: svid.ID})
	third.List(t, "dying", "mcp-v1", at, gatewaytest.Host{ID: svid.ID})
	stream := open(t, first, first.Caller(t, first.SVID(t, gatewaytest.ApproverPath)))
	began := time.Now()
	failUntilOpen(t, first, "dying")
	failUntilOpen(t, second, "another-name")
	failUntilOpen(t, third, "dying")
	for _, b := range all {
		if count := escalated(t, b, "coordinated"); count != "1" {
			t.Errorf("%s has escalated %s times", b.Dev.Gateway.ID, count)
		}
	}
	var event breakers.Event
	for event.State != "escalated" {
		gatewaytest.Must(t, json.Unmarshal([]byte(gatewaytest.NextData(t, stream)), &event))
	}
	claims, err := first.Judge.Verify(t.Context(), event.Token, ect.Check{Purpose: ect.Parent})
	if err != nil || claims.Act() != ect.ActEscalate || event.Agent != string(svid.ID) || event.Reason != "coordinated" {
		t.Errorf("the event %+v has %v, %v", event, claims, err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	for _, b := range all {
		b.Counts(t, `aepb_breaker_escalations_total{reason="coordinated"} 1`)
	}
}

// TestAttack_PeersLieAboutBreakers: three gateways write what they like on their streams. One that proves another
// identity is not read; agents that are not listed, large events and repetitions call no human.
func TestAttack_PeersLieAboutBreakers(t *testing.T) {
	t.Parallel()
	opening := func(agent string) string {
		at, err := time.Now().MarshalText()
		gatewaytest.Must(t, err)
		return "event: breaker\ndata: {\"agent\":\"" + agent + "\",\"state\":\"open\",\"at\":\"" + string(at) + "\"}\n\n"
	}
	const agent = "spiffe://" + gatewaytest.TrustDomain + "/victim"
	const broken = "event: breaker\ndata: no JSON\n\n"
	for name, c := range map[string]struct {
		gateways int           // that write it
		shown    string        // the path of the identity that they all show; empty: each shows its own
		text     func() string // with the time as it is then
		logged   int           // streams that cannot be read
		want     string        // escalations; empty: there are none
	}{
		"no attack":      {3, "", func() string { return opening(agent) }, 0, "1"},
		"wrong identity": {3, "/fake", func() string { return opening(agent) }, 3, ""},
		"one gateway":    {1, "", func() string { return strings.Repeat(opening(agent), 100) + broken }, 1, ""},
		"not listed":     {3, "", func() string { return opening(agent+"-2") + opening("victim") + opening("") + broken }, 3, ""},
		"oversized":      {3, "", func() string { return opening(agent+strings.Repeat("x", 64<<10)) + opening(agent) }, 3, ""},
		"flood":          {3, "", func() string { return strings.Repeat(opening(agent), 200) }, 0, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
			b.ListAs(t, "victim", agent, directory.Endpoint{Binding: "mcp-v1", URL: "https://127.0.0.1:1/mcp"})
			settings := b.Settings()
			settings.Peers = map[string]config.Peer{}
			for i := range c.gateways {
				path := "/liar-" + strconv.Itoa(i)
				settings.Peers["spiffe://"+gatewaytest.TrustDomain+path] = config.Peer{Gateway: liar(t, b, cmp.Or(c.shown, path), c.text) + "/aepb/translate"}
			}
			gatewaytest.Must(t, b.Reload(t.Context(), settings))
			if c.want != "" {
				if count := escalated(t, b, "coordinated"); count != c.want {
					t.Errorf("escalated %s times, want %s", count, c.want)
				}
				return
			}
			for end := time.Now().Add(gatewaytest.Patience); strings.Count(b.Logs.String(), "the circuit breakers of another gateway cannot be read") < c.logged; <-time.After(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("not all streams have ended: %s", b.Logs)
				}
			}
			got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Caller(t, b.SVID(t, gatewaytest.ApproverPath)), Method: http.MethodGet, At: b.At.Admin + "/metrics"})
			if strings.Contains(string(got.Body), `aepb_breaker_escalations_total{`) {
				t.Error("a human was called")
			}
		})
	}
}

// liar serves a text as the stream of a gateway that shows an identity, until the test ends.
func liar(t *testing.T, b *gatewaytest.Fixture, path string, text func() string) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text())
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = gatewaytest.Serving(b.SVID(t, path))
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
