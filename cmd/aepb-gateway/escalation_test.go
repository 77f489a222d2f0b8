package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// TestEscalation_IsPosted: three agents whose breakers open within a minute are told to the
// operators at the URL of the configuration, with a token that verifies.
func TestEscalation_IsPosted(t *testing.T) {
	t.Parallel()
	posts := make(chan *http.Request, 4)
	bodies := make(chan []byte, 4)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		posts <- r
		bodies <- body
	}))
	t.Cleanup(server.Close)
	at := "https://" + server.Listener.Addr().String() + "/escalations"
	b := newBed(t, plan{config: config.Config{Policy: config.Policy{CircuitSamples: 2, EscalationURL: at}}})
	server.TLS = serving(b.svid(t, "/operators"))
	server.StartTLS()
	other := b.caller(t, b.svid(t, "/other"))
	for _, agent := range []string{"one", "two", "three"} {
		b.serve(t, agent, "mcp-v1", &fake{conduct: hangsUp}, host{})
		for _, via := range []*http.Client{nil, other} {
			b.send(t, letter{via: via, at: "/agents/" + agent + "/a2a", body: addBody(b.number())})
		}
	}
	var post *http.Request
	select {
	case post = <-posts:
	case <-time.After(patience):
		t.Fatal("nothing was posted")
	}
	var event breakers.Event
	must(t, json.Unmarshal(<-bodies, &event))
	token := post.Header.Get(ect.HeaderName)
	if event.Agent != "three" || event.State != "escalated" || event.Reason != "many_agents" || event.Token != token || post.Header.Get("Content-Type") != "application/json" {
		t.Errorf("posted was %+v with %v", event, post.Header)
	}
	claims, err := b.judge.Verify(t.Context(), token, ect.Check{Purpose: ect.Parent})
	if err != nil || claims.Act() != ect.ActEscalate || claims.Level() < ect.L2 {
		t.Errorf("its token: %v, %v", claims, err)
	}
	b.counts(t, `aepb_ects_issued_total{act="atd:escalate",level="L2"} 1`)
	b.counts(t, `aepb_breaker_escalations_total{reason="many_agents"} 1`)
}

// TestEscalations_Waiting: what adds an escalation does not wait for its receiver; of too many
// that wait, the latest are dropped.
func TestEscalations_Waiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &escalations{logger: slog.New(slog.DiscardHandler), queue: make(chan breakers.Event, maxEscalations)}
		for range 2 * maxEscalations {
			e.add(t.Context(), breakers.Event{Agent: "one"})
		}
		if len(e.queue) != maxEscalations {
			t.Errorf("%d wait", len(e.queue))
		}
	})
}
