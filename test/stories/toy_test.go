package stories

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestProtocol_SixthServesEveryPair: a protocol is a folder, here a file, and a line, here in
// the plan; every pair with it is then served, with evidence.
func TestProtocol_SixthServesEveryPair(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Also: []server.Factory{gatewaytest.SpeakToy}})
	b.UACPAgent(t, "abacus", &gatewaytest.UACPFake{}, "")
	b.AINPAgent(t, "scribe", &gatewaytest.AINPFake{}, directory.Endpoint{})
	toyAgent(t, b, b.SVID(t, "/toy"))
	for _, to := range []string{"a2a-v1", "mcp-v1", "uacp-v1", "ainp-v1"} {
		for _, pair := range []string{"from=toy-v1&to=" + to, "from=" + to + "&to=toy-v1"} {
			if got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/aepb/gateway?" + pair}); got.Status != http.StatusOK {
				t.Errorf("%s is not served", pair)
			}
		}
	}
	for _, dest := range []string{"concierge", "toy"} {
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + dest + "/toy", Body: `{"id":1,"say":"good day"}`})
		b.Right(t, got, "You said: good day")
		if directions := b.Proofs(t, got); len(directions) != 2 || !slices.Contains(directions[1].Parents, directions[0].ID) {
			t.Errorf("%s: %d ECTs", dest, len(directions))
		}
	}
	b.Right(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=toy", Body: gatewaytest.TextBody("good day")})), "You said: good day")
	if reply := b.AskUACP(t, "toy", gatewaytest.FrameOf(t, "", gatewaytest.TextInvoke("good day"))); !strings.Contains(string(reply), "You said: good day") {
		t.Errorf("from µACP: %q", gatewaytest.Short(reply))
	}
	alice := gatewaytest.Did("alice")
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: "/agents/toy/ainp", Body: string(gatewaytest.Signed(alice, gatewaytest.EnvelopeOf(t, alice, gatewaytest.TextInvoke("good day")), ""))}), "You said: good day")
}

func toyAgent(t *testing.T, b *gatewaytest.Fixture, svid *identity.SVID) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer gatewaytest.ToyWords
		if json.NewDecoder(r.Body).Decode(&answer) != nil {
			return
		}
		_ = json.NewEncoder(w).Encode(gatewaytest.ToyWords{ID: answer.ID, Answer: "You said: " + answer.Say})
	}))
	server.TLS = gatewaytest.Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.ListAs(t, "toy", svid.ID, directory.Endpoint{Binding: gatewaytest.ToyBinding, URL: server.URL})
}
