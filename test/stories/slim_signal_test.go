package stories

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestRollback_OverSLIM: a member asks an agent on SLIM to go back, in each of
// SLIM's ways; the agent is asked in its own, and its result comes home. A
// token that is no request is refused before the agent hears of it.
func TestRollback_OverSLIM(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Plan{}
	net := gatewaytest.NewSLIMNet(t, &p)
	p.Config.SLIM.Nodes[0].Caller = "spiffe://" + gatewaytest.TrustDomain + "/client"
	b := gatewaytest.NewFixture(t, p)
	if string(b.Me.ID) != p.Config.SLIM.Nodes[0].Caller {
		t.Fatal(b.Me.ID)
	}
	var requested atomic.Int32
	fake := &gatewaytest.SlimFake{}
	b.SlimAgent(t, net, "adder", "", fake)
	agent := b.Party(t, b.SVID(t, "/adder"))
	fake.Rollback = func(token string) string {
		requested.Add(1)
		request, _, err := ect.ParseUnverified(token)
		if err != nil {
			return ""
		}
		return gatewaytest.Signing(t, agent, ect.Claims{
			Act: ect.ActRollbackResult, Audience: []string{b.Self(), string(request.Issuer)}, Workflow: request.Workflow,
			Parents: []ect.ID{request.ID}, Ext: gatewaytest.Restored(request),
		})
	}
	caller := net.Join(t, "org/callers/alice", nil)
	net.Exposed(t, caller, "adder")
	done, err := gatewaytest.AskSLIM(t, caller, "adder", "SendMessage", gatewaytest.InProtobuf(t, gatewaytest.AddBody(40)), nil)
	gatewaytest.Must(t, err)
	direction, _, err := ect.ParseUnverified(strings.Split(done.Metadata["execution-context"], ",")[1])
	gatewaytest.Must(t, err)
	request := func(act ect.Act) string {
		return gatewaytest.Signing(t, b.Me, ect.Claims{
			Act: act, Audience: []string{b.Self(), string(agent.ID)}, Workflow: direction.Workflow, Parents: []ect.ID{direction.ID},
			Ext: ect.Ext{"atd.reason": json.RawMessage(`"wrong"`)},
		})
	}
	to, err := name.Parse("org/gw/adder")
	gatewaytest.Must(t, err)
	ways := map[string]func(token string) (string, map[string]string, error){
		"SLIMRPC": func(token string) (string, map[string]string, error) {
			stream, err := caller.Call(t.Context(), to, rpc.Request{Service: tslim.ServiceRollback, Method: "Request", Body: []byte(token)})
			if err != nil {
				return "", nil, err
			}
			defer stream.Close()
			f, err := stream.Next(t.Context())
			return string(f.Body), f.Metadata, err
		},
		"JSON-RPC": func(token string) (string, map[string]string, error) {
			f, err := gatewaytest.AskSLIM(t, caller, "adder", "", []byte(`{"jsonrpc":"2.0","id":"r","method":"aepb/rollback","params":{"token":"`+token+`"}}`), nil)
			var answer struct{ Result struct{ Token string } }
			if err == nil {
				err = json.Unmarshal(f.Body, &answer)
			}
			if answer.Result.Token == "" {
				return string(f.Body), f.Metadata, err
			}
			return answer.Result.Token, f.Metadata, err
		},
	}
	for way, ask := range ways {
		before := requested.Load()
		got, metadata, err := ask(request(ect.ActRollbackRequest))
		gatewaytest.Must(t, err)
		result, err := b.Judge.Verify(t.Context(), got, ect.Check{Purpose: ect.Parent})
		if err != nil || result.Act() != ect.ActRollbackResult || result.Issuer() != agent.ID || requested.Load() != before+1 {
			t.Errorf("%s: %v, %q", way, err, gatewaytest.Short([]byte(got)))
			continue
		}
		tokens := strings.Split(metadata["execution-context"], ",")
		reply, _, err := ect.ParseUnverified(tokens[len(tokens)-1])
		if err != nil || !slices.ContainsFunc(tokens, func(compact string) bool {
			c, _, err := ect.ParseUnverified(compact)
			return err == nil && slices.Contains(c.Parents, result.ID())
		}) {
			t.Errorf("%s: the result is no parent of the reply's evidence (%v), %d tokens", way, reply.Parents, len(tokens))
		}
		for refused, token := range map[string]string{"another act": request(ect.ActTranslate), "no token": "a.b.c", "words": "please go back"} {
			if got, _, err := ask(token); err == nil && !strings.Contains(got, `"error"`) {
				t.Errorf("%s: %s: %s", way, refused, got)
			}
		}
		if requested.Load() != before+1 {
			t.Errorf("%s: the agent heard what is no request", way)
		}
	}
}

// TestSLIM_ActivatedExtensions: the agent learns which extensions of A2A a request activates,
// from a caller over HTTP and over SLIM, by a key in any case (SLIMRPC binding, 3).
func TestSLIM_ActivatedExtensions(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Plan{}
	net := gatewaytest.NewSLIMNet(t, &p)
	b := gatewaytest.NewFixture(t, p)
	seen := make(chan string, 1)
	b.SlimAgent(t, net, "adder", "", &gatewaytest.SlimFake{Seen: func(call rpc.Call) { seen <- call.Metadata["a2a-extensions"] }})
	caller := net.Join(t, "org/callers/alice", nil)
	net.Exposed(t, caller, "adder")
	const uri = "https://x.example/extension"
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: "/agents/adder/a2a", Body: gatewaytest.AddBody(40), Header: map[string]string{"A2A-Version": "1.0", "A2A-Extensions": uri}}), "41")
	if got := <-seen; !strings.HasPrefix(got, uri) {
		t.Errorf("of a caller over HTTP the agent was told %q", got)
	}
	if _, err := gatewaytest.AskSLIM(t, caller, "adder", "SendMessage", gatewaytest.InProtobuf(t, gatewaytest.AddBody(40)), map[string]string{"A2A-Extensions": uri}); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; !strings.HasPrefix(got, uri) {
		t.Errorf("of a caller over SLIM the agent was told %q", got)
	}
}

// TestCallbacks_OverSLIM: where a request says who is told of decisions, the agent
// learns it; from another protocol too.
func TestCallbacks_OverSLIM(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Plan{}
	net := gatewaytest.NewSLIMNet(t, &p)
	b := gatewaytest.NewFixture(t, p)
	var notified atomic.Value
	fake := &gatewaytest.SlimFake{Seen: func(call rpc.Call) { notified.Store(call.Metadata["aepb-hitl-callback"]) }}
	b.SlimAgent(t, net, "adder", "", fake)
	caller := net.Join(t, "org/callers/alice", nil)
	net.Exposed(t, caller, "adder")
	const uri = "https://93.184.215.14/decided"
	for way, method := range map[string]string{"SLIMRPC": "SendMessage", "JSON-RPC": ""} {
		body := []byte(gatewaytest.AddBody(40))
		if method != "" {
			body = gatewaytest.InProtobuf(t, gatewaytest.AddBody(40))
		}
		f, err := gatewaytest.AskSLIM(t, caller, "adder", method, body, map[string]string{"aepb-hitl-callback": uri})
		gatewaytest.Must(t, err)
		if got, _ := notified.Load().(string); got != uri {
			t.Errorf("%s: the agent was told %q, and the caller %s", way, got, gatewaytest.Short(f.Body))
		}
		notified.Store("")
		for what, bad := range map[string]string{"plain HTTP": "http://93.184.215.14/x", "no URL": "::"} {
			f, err := gatewaytest.AskSLIM(t, caller, "adder", method, body, map[string]string{"aepb-hitl-callback": bad})
			if err == nil && !strings.Contains(string(f.Body), `"error"`) {
				t.Errorf("%s: %s: %s", way, what, gatewaytest.Short(f.Body))
			}
		}
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodPost, At: "/agents/adder/a2a", Body: gatewaytest.AddBody(40)}); got.Status != http.StatusOK {
		t.Errorf("%d", got.Status)
	}
	if got, _ := notified.Load().(string); got != "" {
		t.Errorf("a callback that nobody named: %q", got)
	}
}
