package stories

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
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
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Policy: config.Policy{CircuitSamples: 2, EscalationURL: at}}})
	server.TLS = gatewaytest.Serving(b.SVID(t, "/operators"))
	server.StartTLS()
	other := b.Caller(t, b.SVID(t, "/other"))
	for _, agent := range []string{"one", "two", "three"} {
		b.Serve(t, agent, "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.HangsUp}, gatewaytest.Host{})
		for _, via := range []*http.Client{nil, other} {
			b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/" + agent + "/a2a", Body: gatewaytest.AddBody(b.Number())})
		}
	}
	var post *http.Request
	select {
	case post = <-posts:
	case <-time.After(gatewaytest.Patience):
		t.Fatal("nothing was posted")
	}
	var event breakers.Event
	gatewaytest.Must(t, json.Unmarshal(<-bodies, &event))
	token := post.Header.Get(ect.HeaderName)
	if event.Agent != "three" || event.State != "escalated" || event.Reason != "many_agents" || event.Token != token || post.Header.Get("Content-Type") != "application/json" {
		t.Errorf("posted was %+v with %v", event, post.Header)
	}
	claims, err := b.Judge.Verify(t.Context(), token, ect.Check{Purpose: ect.Parent})
	if err != nil || claims.Act() != ect.ActEscalate || claims.Level() < ect.L2 {
		t.Errorf("its token: %v, %v", claims, err)
	}
	b.Counts(t, `aepb_ects_issued_total{act="atd:escalate",level="L2"} 1`)
	b.Counts(t, `aepb_breaker_escalations_total{reason="many_agents"} 1`)
}
