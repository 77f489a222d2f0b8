package main

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
)

// peerWith has gateways list each other in their configurations.
func peerWith(t *testing.T, gateways ...*bed) {
	t.Helper()
	for _, b := range gateways {
		c := b.settings.config
		c.Peers = map[string]config.Peer{}
		for _, other := range gateways {
			if other != b {
				c.Peers[string(other.dev.Gateway.ID)] = config.Peer{Gateway: other.at.Public + "/aepb/translate", Callers: []string{"spiffe://" + devTrustDomain + "/*"}}
			}
		}
		must(t, b.reload(t.Context(), c))
	}
}

// escalated reads the metrics of a gateway until it has escalated for a reason, and returns the count.
func (b *bed) escalated(t *testing.T, reason string) string {
	t.Helper()
	operator := b.caller(t, b.svid(t, approverPath))
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		got := b.send(t, letter{via: operator, method: http.MethodGet, at: b.at.Admin + "/metrics"})
		if _, after, found := strings.Cut(string(got.body), `aepb_breaker_escalations_total{reason="`+reason+`"} `); found {
			count, _, _ := strings.Cut(after, "\n")
			return count
		}
	}
	t.Fatalf("%s has not escalated", b.dev.Gateway.ID)
	return ""
}

// TestBreaker_Coordinated: three gateways that read each other's breakers, and one agent that dies: each gateway
// calls a human once, within a minute, with a token that verifies (ATD, Coordinated Circuit Breaking; R21).
func TestBreaker_Coordinated(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second, third := first.beside(t, "gateway-2", config.Config{}), first.beside(t, "gateway-3", config.Config{})
	all := []*bed{first, second, third}
	peerWith(t, all...)
	svid := first.svid(t, "/dying")
	at := first.serve(t, "dying", "mcp-v1", &fake{conduct: hangsUp}, host{tls: serving(svid), id: svid.ID})
	second.list(t, "another-name", "mcp-v1", at, host{id: svid.ID})
	third.list(t, "dying", "mcp-v1", at, host{id: svid.ID})
	stream := first.open(t, first.caller(t, first.svid(t, approverPath)))
	began := time.Now()
	first.failUntilOpen(t, "dying")
	second.failUntilOpen(t, "another-name")
	third.failUntilOpen(t, "dying")
	for _, b := range all {
		if count := b.escalated(t, "coordinated"); count != "1" {
			t.Errorf("%s has escalated %s times", b.dev.Gateway.ID, count)
		}
	}
	var event breakers.Event
	for event.State != "escalated" {
		must(t, json.Unmarshal([]byte(nextData(t, stream)), &event))
	}
	claims, err := first.judge.Verify(t.Context(), event.Token, ect.Check{Purpose: ect.Parent})
	if err != nil || claims.Act() != ect.ActEscalate || event.Agent != string(svid.ID) || event.Reason != "coordinated" {
		t.Errorf("the event %+v has %v, %v", event, claims, err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	for _, b := range all {
		b.counts(t, `aepb_breaker_escalations_total{reason="coordinated"} 1`)
	}
}

// TestAttack_PeersLieAboutBreakers: three gateways write what they like on their streams. One that proves another
// identity is not read; agents that are not listed, large events and repetitions call no human.
func TestAttack_PeersLieAboutBreakers(t *testing.T) {
	t.Parallel()
	opening := func(agent string) string {
		at, err := time.Now().MarshalText()
		must(t, err)
		return "event: breaker\ndata: {\"agent\":\"" + agent + "\",\"state\":\"open\",\"at\":\"" + string(at) + "\"}\n\n"
	}
	const agent = "spiffe://" + devTrustDomain + "/victim"
	for name, c := range map[string]struct {
		gateways int    // that write it
		shown    string // the path of the identity that they all show; empty: each shows its own
		text     string
		logged   int    // streams that cannot be read
		want     string // escalations; empty: there are none
	}{
		"no attack":      {3, "", opening(agent), 0, "1"},
		"wrong identity": {3, "/fake", opening(agent), 3, ""},
		"one gateway":    {1, "", strings.Repeat(opening(agent), 100) + "event: breaker\ndata: no JSON\n\n", 1, ""},
		"not listed":     {3, "", opening(agent+"-2") + opening("victim") + opening("") + "event: breaker\ndata: no JSON\n\n", 3, ""},
		"oversized":      {3, "", opening(agent+strings.Repeat("x", 64<<10)) + opening(agent), 3, ""},
		"flood":          {3, "", strings.Repeat(opening(agent), 200), 0, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plan{})
			b.listAs(t, "victim", agent, directory.Endpoint{Binding: "mcp-v1", URL: "https://127.0.0.1:1/mcp"})
			settings := b.settings.config
			settings.Peers = map[string]config.Peer{}
			for i := range c.gateways {
				path := "/liar-" + strconv.Itoa(i)
				settings.Peers["spiffe://"+devTrustDomain+path] = config.Peer{Gateway: b.liar(t, cmp.Or(c.shown, path), c.text) + "/aepb/translate"}
			}
			must(t, b.reload(t.Context(), settings))
			if c.want != "" {
				if count := b.escalated(t, "coordinated"); count != c.want {
					t.Errorf("escalated %s times, want %s", count, c.want)
				}
				return
			}
			for end := time.Now().Add(patience); strings.Count(b.logs.String(), "the circuit breakers of another gateway cannot be read") < c.logged; <-time.After(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("not all streams have ended: %s", b.logs)
				}
			}
			got := b.send(t, letter{via: b.caller(t, b.svid(t, approverPath)), method: http.MethodGet, at: b.at.Admin + "/metrics"})
			if strings.Contains(string(got.body), `aepb_breaker_escalations_total{`) {
				t.Error("a human was called")
			}
		})
	}
}

// liar serves a text as the stream of a gateway that shows an identity, until the test ends.
func (b *bed) liar(t *testing.T, path, text string) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = serving(b.svid(t, path))
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
