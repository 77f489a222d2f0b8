package stories

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// carrier is a workload that may carry others' tokens to the gateway of a test, as
// another gateway does.
const carrier = "/carrier"

func withCarrier() gatewaytest.Plan {
	return gatewaytest.Plan{Config: config.Config{Policy: config.Policy{Gateways: []string{"spiffe://" + gatewaytest.TrustDomain + carrier}}}}
}

// webhook takes decisions.
type webhook struct {
	server *httptest.Server // nil: not started
	tokens chan string      // of the decisions, in the order in which they come
}

// newWebhook is called before a test starts its gateway. What it was told besides what
// the test has read is judged when that gateway has ended: only then nothing can come
// any more.
func newWebhook(t *testing.T) *webhook {
	t.Helper()
	h := &webhook{tokens: make(chan string, 64)}
	t.Cleanup(func() {
		if h.server != nil {
			h.server.Close()
		}
		if n := len(h.tokens); n > 0 {
			t.Errorf("%d notifications tell of a decision that was not made, or of one for a second time", n)
		}
	})
	return h
}

func (h *webhook) start(t *testing.T, b *gatewaytest.Fixture) {
	t.Helper()
	h.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.tokens <- r.Header.Get(ect.HeaderName)
		w.WriteHeader(http.StatusNoContent)
	}))
	h.server.TLS = gatewaytest.Serving(b.SVID(t, "/hook"))
	h.server.StartTLS()
}

// notified waits for the next decision.
func (h *webhook) notified(t *testing.T, token string) {
	t.Helper()
	select {
	case got := <-h.tokens:
		if got != token {
			t.Error("another token was told, or one once more")
		}
	case <-time.After(gatewaytest.Patience):
		t.Error("the decision was not told")
	}
}

// decidedOnce makes a decision over µACP, lets it come again in every way, and expects
// the webhook to be told of it once: by the approver in the same bytes, and twice by a
// gateway that carries it, in messages that are new each time. A second decision, about
// something else, comes after all of them and is told after the first.
func decidedOnce(t *testing.T, b *gatewaytest.Fixture, h *webhook, name string, decision ect.Claims) {
	t.Helper()
	say := func(who *identity.SVID, approval, token string, evidence ...string) {
		t.Helper()
		frame := b.Signal(t, &canonical.Message{Op: canonical.OpDecision, Body: &canonical.Signal{Approval: approval, Token: token}})
		if len(evidence) > 0 {
			var err error
			frame, err = gatewaytest.UACPWithEvidence(frame, evidence)
			gatewaytest.Must(t, err)
		}
		conn := b.DialUACP(t, name, who)
		gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, frame))
		reply, err := gatewaytest.ReadFrameOf(conn)
		gatewaytest.Must(t, err)
		if f, err := uacp.ParseFrame(reply); err != nil || f.Code >= 0x40 {
			t.Fatalf("the decision got %s", gatewaytest.Short(reply))
		}
	}
	own, other := b.SVID(t, gatewaytest.ApproverPath), b.SVID(t, carrier)
	decision.Act, decision.Audience = ect.ActApprovalGranted, []string{b.Self()}
	grant := func() string { return ecttest.Mint(t, b.Party(t, own), ecttest.Recipe{Claims: decision}) }
	granted := grant()
	claims, _, err := ect.ParseUnverified(granted)
	gatewaytest.Must(t, err)
	for range 2 {
		say(own, "a-1", granted)
	}
	for range 2 {
		say(other, "a-1", granted, ecttest.Mint(t, b.Party(t, other), ecttest.Recipe{Claims: ect.Claims{
			Act: ect.ActTranslate, Audience: []string{b.Self()}, Workflow: decision.Workflow, Parents: []ect.ID{claims.ID},
		}}))
	}
	h.notified(t, granted)
	next := grant()
	say(own, "a-2", next)
	h.notified(t, next)
}

// TestCallbacks_HTTPCallersGetTheDecisionOnce: callers of A2A and of MCP register a webhook for their
// workflow, and are told the decision, as it was signed, once (AEPB, HITL Callback
// Registration).
func TestCallbacks_HTTPCallersGetTheDecisionOnce(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	b := gatewaytest.NewFixture(t, withCarrier())
	hook.start(t, b)
	agent := &gatewaytest.UACPFake{}
	b.UACPAgent(t, "abacus", agent, "")
	agent.Undo = b.Undoes(t, agent)
	register := func(via *http.Client, wid, uri string) gatewaytest.Reply {
		return b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/hitl/callbacks", Body: `{"wid":"` + wid + `","uri":"` + uri + `"}`})
	}
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3},` + gatewaytest.ModernMeta + `}}`
	for endpoint, request := range map[string]gatewaytest.HTTPRequest{
		"a2a": {At: "/agents/abacus/a2a", Body: gatewaytest.AddBody(1), Header: map[string]string{"A2A-Version": "1.0"}},
		"mcp": {At: "/agents/abacus/mcp", Body: call, Header: gatewaytest.Mirror("tools/call", "add")},
	} {
		got := b.Send(t, request)
		b.Right(t, got, `"sum":`)
		directions := b.Proofs(t, got)
		wid := directions[0].Workflow
		for range 2 {
			if got := register(b.Client, wid, hook.server.URL+"/"+endpoint); got.Status != http.StatusCreated {
				t.Fatalf("%s: %d %s", endpoint, got.Status, gatewaytest.Short(got.Body))
			}
		}
		decidedOnce(t, b, hook, "abacus", ect.Claims{Workflow: wid, Parents: []ect.ID{directions[0].ID}, InputHash: directions[0].InputHash})
		stranger := b.Caller(t, b.SVID(t, "/stranger"))
		for name, c := range map[string]struct {
			got    gatewaytest.Reply
			status int
			code   string
		}{
			"a stranger":       {register(stranger, wid, hook.server.URL), 404, "not_found"},
			"nobody":           {register(b.Anonymous, wid, hook.server.URL), 401, "unauthenticated"},
			"another workflow": {register(b.Client, string(ect.NewID()), hook.server.URL), 404, "not_found"},
			"no webhook":       {register(b.Client, wid, "gopher://x"), 403, "policy_violation"},
			"plain HTTP":       {register(b.Client, wid, "http://192.0.2.1/"), 403, "policy_violation"},
			"metadata":         {register(b.Client, wid, "https://169.254.169.254/"), 403, "policy_violation"},
			"no URI":           {register(b.Client, wid, ""), 400, "malformed_message"},
			"more members":     {register(b.Client, wid, `x","also":"y`), 400, "malformed_message"},
			"no JSON":          {b.Send(t, gatewaytest.HTTPRequest{At: "/hitl/callbacks", Body: "}"}), 400, "malformed_message"},
			"too long":         {b.Send(t, gatewaytest.HTTPRequest{At: "/hitl/callbacks", Body: strings.Repeat(" ", 9<<10)}), 413, "too_large"},
			"media type":       {b.Send(t, gatewaytest.HTTPRequest{At: "/hitl/callbacks", Media: "text/plain", Body: "{}"}), 415, "unsupported_media_type"},
		} {
			if c.got.Status != c.status || gatewaytest.ProblemCode(t, c.got) != c.code {
				t.Errorf("%s: %d %s", name, c.got.Status, gatewaytest.Short(c.got.Body))
			}
		}
	}
}
