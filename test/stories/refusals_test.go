package stories

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// way says something at a door with the evidence that hash makes for it, and how
// the door answered: the HTTP status (0: it has none) and the text of the error in
// the protocol's own shape; "": it is none.
type way func(t *testing.T, evidence func(bytes []byte) []string) (status int, notice string)

// failed is the error of a reply in a form; "": it is another message.
func failed(t *testing.T, form translators.Translator, wire translators.Wire) string {
	t.Helper()
	wire.Re = canonical.OpInvoke
	m, err := form.Decode(wire)
	gatewaytest.Must(t, err)
	if notified, ok := m.Body.(*canonical.Error); ok && m.Phase == canonical.PhaseError {
		return notified.Message
	}
	return ""
}

// endpoints are the five protocols' doors, A2A's in both forms. who is the caller.
func endpoints(b *gatewaytest.Fixture, via *http.Client, frames func(*testing.T, []byte) []byte) map[string]way {
	overHTTP := func(l gatewaytest.HTTPRequest, notified func([]byte) string) way {
		return func(t *testing.T, evidence func([]byte) []string) (int, string) {
			t.Helper()
			l.Via, l.Tokens = via, evidence([]byte(l.Body))
			got := b.Send(t, l)
			return got.Status, notified(got.Body)
		}
	}
	jsonRPC := func(body []byte) string {
		var reply struct {
			JSONRPC string
			Error   struct{ Message string }
		}
		if json.Unmarshal(body, &reply) != nil || reply.JSONRPC != "2.0" {
			return ""
		}
		return reply.Error.Message
	}
	rest := func(body []byte) string {
		var reply struct {
			Error struct{ Message string }
		}
		_ = json.Unmarshal(body, &reply)
		return reply.Error.Message
	}
	alice := gatewaytest.Did("alice")
	return map[string]way{
		"a2a-v1":      overHTTP(gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1)}, jsonRPC),
		"a2a-v1 REST": overHTTP(gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A + "/v1/message:send", Body: gatewaytest.Rest03}, rest),
		"mcp-v1":      overHTTP(gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: gatewaytest.CallBody("concierge", "x"), Header: gatewaytest.Mirror("tools/call", "concierge")}, jsonRPC),
		"uacp-v1": func(t *testing.T, evidence func([]byte) []string) (int, string) {
			t.Helper()
			frame := gatewaytest.FrameOf(t, uacp.FormEnveloped, gatewaytest.Addition(1))
			input, err := uacp.HashInput(frame)
			gatewaytest.Must(t, err)
			frame, err = gatewaytest.UACPWithEvidence(frame, evidence(input))
			gatewaytest.Must(t, err)
			return 0, failed(t, uacp.New(translators.Config{}), translators.Wire{Binding: uacp.Binding, Body: frames(t, frame)})
		},
		"ainp-v1": func(t *testing.T, evidence func([]byte) []string) (int, string) {
			t.Helper()
			body := gatewaytest.EnvelopeOf(t, alice, gatewaytest.Addition(1))
			input, err := ainp.HashInput(body)
			gatewaytest.Must(t, err)
			if tokens := evidence(input); len(tokens) > 0 {
				body, err = gatewaytest.AINPWithEvidence(body, tokens)
				gatewaytest.Must(t, err)
			}
			got := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/calculator/ainp", Body: string(gatewaytest.Signed(alice, body, ""))})
			return got.Status, failed(t, ainp.New(translators.Config{}), translators.Wire{Binding: ainp.Binding, Body: got.Body})
		},
	}
}

// TestHops_RefusedAtEveryEndpoint: a message that would be translated once too often is
// refused at each door in the words of its protocol, and so is one that comes back
// to a gateway which has translated it (R1).
func TestHops_RefusedAtEveryEndpoint(t *testing.T) {
	t.Parallel()
	far := "spiffe://" + gatewaytest.TrustDomain + "/gateway-2"
	one := 1
	for name, p := range map[string]struct {
		hops     *int
		loops    bool
		notified string
	}{
		"hops": {&one, false, "refused by constraint aepb.max_translation_hops"},
		"loop": {nil, true, "refused by constraint loop: this message has already passed this gateway"},
	} {
		plan := gatewaytest.Plan{Config: config.Config{
			Policy: config.Policy{MaxHops: p.hops}, AINP: config.AINP{Callers: map[string]string{gatewaytest.Did("alice").DID: far}},
		}}
		net := gatewaytest.NewSLIMNet(t, &plan)
		plan.Config.SLIM.Nodes[0].Caller = far
		b := gatewaytest.NewFixture(t, plan)
		other := b.SVID(t, "/gateway-2")
		gateway, us := b.Party(t, other), b.Party(t, b.Dev.Gateway)
		evidence := func(bytes []byte) []string {
			wid := string(ect.NewID())
			first := us
			if !p.loops {
				first = b.Me // it was somebody else who translated first
			}
			ext := ect.Ext{}
			ext.SetString(ect.ExtLeg, "request")
			root := ecttest.Mint(t, first, ecttest.Recipe{Claims: ect.Claims{Act: ect.ActTranslate, Audience: []string{far, b.Self()}, Workflow: wid, Ext: ext}})
			claims, _, err := ect.ParseUnverified(root)
			gatewaytest.Must(t, err)
			return []string{ecttest.Mint(t, gateway, ecttest.Recipe{Claims: ect.Claims{
				Act: ect.ActTranslate, Audience: []string{b.Self()}, Workflow: wid, Parents: []ect.ID{claims.ID}, OutputHash: ect.Hash(bytes), Ext: ext,
			}}), root}
		}
		frames := func(t *testing.T, frame []byte) []byte {
			t.Helper()
			conn := b.DialUACP(t, "calculator", other)
			gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, frame))
			reply, err := gatewaytest.ReadFrameOf(conn)
			gatewaytest.Must(t, err)
			return reply
		}
		for endpoint, say := range endpoints(b, b.Caller(t, other), frames) {
			status, notice := say(t, evidence)
			if !strings.HasSuffix(notice, p.notified) || status != 0 && status != http.StatusForbidden && status != http.StatusOK {
				t.Errorf("%s at %s: %d %q", name, endpoint, status, notice)
			}
		}
		caller := net.Join(t, "org/agents/far", nil)
		net.Exposed(t, caller, "calculator")
		body := gatewaytest.InProtobuf(t, gatewaytest.AddBody(1))
		_, err := gatewaytest.AskSLIM(t, caller, "calculator", "SendMessage", body, map[string]string{"execution-context": strings.Join(evidence(body), ",")})
		var status *rpc.StatusError
		if !errors.As(err, &status) || status.Code != 7 || // PERMISSION_DENIED
			!strings.HasSuffix(status.Message, p.notified) {
			t.Errorf("%s at slim-v1: %v", name, err)
		}
		b.Works(t)
	}
}
