package stories

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// addCall asks for a sum, in MCP.
const addCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":40,"b":1},` + gatewaytest.ModernMeta + `}}`

// answeredWell: the agent has said good day, or what the sum is.
func answeredWell(answer string) bool {
	return strings.Contains(answer, "You said: "+gatewaytest.Greeting) || strings.Contains(answer, `"sum":41`)
}

// naming says good day to the agent "abacus" in one protocol, or asks it for a sum. The message names a
// parent, as it stands, and has a token whose parents are those given, if any are.
type naming func(t *testing.T, parent string, par ...ect.ID) (answer string)

// lineal mints tokens of the development client in a workflow.
type lineal struct {
	b        *gatewaytest.Fixture
	workflow string
	last     ect.ID
}

func (l *lineal) token(t *testing.T, hashed []byte, par []ect.ID) string {
	t.Helper()
	recipe := l.b.Recipe(string(hashed))
	recipe.Claims.Workflow, recipe.Claims.Parents = l.workflow, par
	l.last = ect.NewID()
	recipe.Claims.ID = l.last
	return ecttest.Mint(t, l.b.Me, recipe)
}

// named puts a parent into the object of gateways, which is the first that a
// message has of this name.
func named(body, parent string) string {
	member := `"parent_jti":"` + parent + `"`
	if strings.Contains(body, `"aepb":{}`) {
		return strings.Replace(body, `"aepb":{}`, `"aepb":{`+member+`}`, 1)
	}
	return strings.Replace(body, `"aepb":{`, `"aepb":{`+member+`,`, 1)
}

// framed is a frame that names a parent: in its envelope, or bare in an option.
func framed(t *testing.T, carriage, parent string) []byte {
	t.Helper()
	f, err := uacp.ParseFrame(gatewaytest.FrameOf(t, carriage, gatewaytest.TextInvoke(gatewaytest.Greeting)))
	gatewaytest.Must(t, err)
	if carriage == uacp.FormBare {
		content, _ := hex.DecodeString(strings.ReplaceAll(parent, "-", ""))
		f.Options = append(f.Options, uacp.Option{Type: uacp.OptParent, Value: content})
	} else {
		f.Payload = []byte(named(string(f.Payload), parent))
	}
	out, err := f.Bytes()
	gatewaytest.Must(t, err)
	return out
}

// namings are the ways in which a message names its parent, by protocol.
func namings(t *testing.T, b *gatewaytest.Fixture, mint *lineal) map[string]naming {
	t.Helper()
	post := func(at, body string, more map[string]string, how func(string, string) string) naming {
		return func(t *testing.T, parent string, par ...ect.ID) string {
			t.Helper()
			text, header := how(body, parent), map[string]string{}
			maps.Copy(header, more)
			if text == body {
				header["Aepb-Parent-Jti"] = parent
			}
			l := gatewaytest.HTTPRequest{At: at, Body: text, Header: header}
			if par != nil {
				l.Tokens = []string{mint.token(t, []byte(text), par)}
			}
			return string(b.Send(t, l).Body)
		}
	}
	beside := func(body, _ string) string { return body }
	caller := b.Slim.Join(t, "org/callers/alice", nil)
	b.Slim.Exposed(t, caller, "abacus")
	overSLIM := func(method string, body []byte) naming {
		return func(t *testing.T, parent string, par ...ect.ID) string {
			t.Helper()
			metadata := map[string]string{"aepb-parent-jti": parent}
			if par != nil {
				metadata["execution-context"] = mint.token(t, body, par)
			}
			f, err := gatewaytest.AskSLIM(t, caller, "abacus", method, body, metadata)
			if failed, ok := errors.AsType[*rpc.StatusError](err); ok {
				return failed.Message
			}
			gatewaytest.Must(t, err)
			return string(f.Body)
		}
	}
	inFrames := func(carriage string) naming {
		return func(t *testing.T, parent string, par ...ect.ID) string {
			t.Helper()
			frame := framed(t, carriage, parent)
			if par != nil {
				input, err := uacp.HashInput(frame)
				gatewaytest.Must(t, err)
				frame, err = gatewaytest.UACPWithEvidence(frame, []string{mint.token(t, input, par)})
				gatewaytest.Must(t, err)
			}
			return string(b.AskUACP(t, "abacus", frame))
		}
	}
	stub := b.Remote(t, b.ClientTLS(t, b.Dev.Client))
	return map[string]naming{
		"A2A":            post("/agents/abacus/a2a", gatewaytest.TextBody(gatewaytest.Greeting), map[string]string{"A2A-Version": "1.0"}, beside),
		"MCP":            post("/agents/abacus/mcp", addCall, gatewaytest.Mirror("tools/call", "add"), beside),
		"A2A over gRPC":  overStub(stub, mint),
		"SLIMRPC":        overSLIM("SendMessage", gatewaytest.InProtobuf(t, gatewaytest.TextBody(gatewaytest.Greeting))),
		"JSON-RPC":       overSLIM("", []byte(gatewaytest.TextBody(gatewaytest.Greeting))),
		"µACP":           inFrames(uacp.FormEnveloped),
		"µACP, bare":     inFrames(uacp.FormBare),
		"AINP":           overAINP(b, mint),
		"the translator": post("/aepb/translate?from=a2a-v1&dest=abacus", gatewaytest.TextBody(gatewaytest.Greeting), nil, beside),
	}
}

func overStub(stub *grpctest.Caller, mint *lineal) naming {
	return func(t *testing.T, parent string, par ...ect.ID) string {
		t.Helper()
		content := gatewaytest.Request(t, "SendMessage", gatewaytest.MessageTo("abacus", gatewaytest.Greeting))
		fields := []string{"aepb-parent-jti", parent}
		if par != nil {
			fields = append(fields, headerECT, mint.token(t, content, par))
		}
		got := stub.Call(t.Context(), "SendMessage", [][]byte{content}, fields...)
		return strings.Join([]string{got.Code, got.Details, string(bytes.Join(got.Messages, nil))}, " ")
	}
}

func overAINP(b *gatewaytest.Fixture, mint *lineal) naming {
	alice := gatewaytest.Did("alice")
	return func(t *testing.T, parent string, par ...ect.ID) string {
		t.Helper()
		body := string(gatewaytest.EnvelopeOf(t, alice, gatewaytest.TextInvoke(gatewaytest.Greeting)))
		if !strings.Contains(body, `"aepb":{`) {
			body = strings.Replace(body, `"payload":{`, `"payload":{"aepb":{},`, 1)
		}
		content := []byte(named(body, parent))
		if par != nil {
			input, err := ainp.HashInput(content)
			gatewaytest.Must(t, err)
			content, err = gatewaytest.AINPWithEvidence(content, []string{mint.token(t, input, par)})
			gatewaytest.Must(t, err)
		}
		return string(b.Send(t, gatewaytest.HTTPRequest{At: "/agents/abacus/ainp", Body: string(gatewaytest.Signed(alice, content, ainp.SigDraft))}).Body)
	}
}

// began makes a workflow of a caller's own, and gives our two tokens of it.
func began(t *testing.T, b *gatewaytest.Fixture, via *http.Client) (request, answered ect.Claims) {
	t.Helper()
	got := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(40), Header: map[string]string{"A2A-Version": "1.0"}})
	directions := b.Proofs(t, got)
	if len(directions) != 2 {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	return directions[0], directions[1]
}

// children are our tokens in a workflow whose only parent is this one.
func children(t *testing.T, b *gatewaytest.Fixture, via *http.Client, workflow string, of ect.ID) (out []ect.Claims) {
	t.Helper()
	for _, claims := range workflowFixture(t, b, via, workflow) {
		if slices.Equal(claims.Parents, []ect.ID{of}) && string(claims.Issuer) == b.Self() {
			out = append(out, claims)
		}
	}
	return out
}

// workflowFixture is what one of its members is told of it.
func workflowFixture(t *testing.T, b *gatewaytest.Fixture, via *http.Client, workflow string) (out []ect.Claims) {
	t.Helper()
	var answer struct {
		WID  string
		ECTs []string
	}
	got := b.Send(t, gatewaytest.HTTPRequest{Via: via, Method: http.MethodGet, At: "/workflows/" + workflow})
	gatewaytest.JSONIn(t, got.Body, &answer)
	for _, compact := range answer.ECTs {
		claims, _, err := ect.ParseUnverified(compact)
		gatewaytest.Must(t, err)
		out = append(out, claims)
	}
	return out
}

// parented is a gateway with an agent behind µACP, whose callers are the development
// client on SLIM too.
func parented(t *testing.T, agent *gatewaytest.UACPFake, carriage string) *gatewaytest.Fixture {
	t.Helper()
	p := gatewaytest.Plan{}
	net := gatewaytest.NewSLIMNet(t, &p)
	p.Config.SLIM.Nodes[0].Caller = "spiffe://" + gatewaytest.TrustDomain + "/client"
	b := gatewaytest.NewFixture(t, p)
	b.Slim = net
	b.UACPAgent(t, "abacus", agent, carriage)
	return b
}

// TestParent_InEveryProtocol: in every protocol a message names what it came of (AEPB, Task
// Invocation with Parent Reference): by the par of its ECT, which is the parent of
// ours, or without one by a jti alone.
func TestParent_InEveryProtocol(t *testing.T) {
	t.Parallel()
	agent := &gatewaytest.UACPFake{}
	b := parented(t, agent, "")
	somebody := b.As(t, "/somebody")
	_, foreign := began(t, b, somebody)
	mint := &lineal{b: b, workflow: string(ect.NewID())}
	for name, ask := range namings(t, b, mint) {
		t.Run(name, func(t *testing.T) {
			if name != "the translator" { // it demands a token
				namesAlone(t, b, agent, ask, foreign.ID)
			}
			if name == "µACP, bare" {
				return // it has no place for a token
			}
			if answer := ask(t, "a-task"); !strings.Contains(answer, "no UUID") {
				t.Errorf("no id: answered was %q", gatewaytest.Short([]byte(answer)))
			}
			namesBeside(t, b, agent, ask, mint)
		})
	}
	if got := children(t, b, somebody, foreign.Workflow, foreign.ID); len(got) != 0 {
		t.Errorf("another's token has %d children", len(got))
	}
	b.Works(t)
}

// namesAlone: a message that names an ECT, and brings none, goes on with that one's
// workflow, if it concerns its sender; else the agent never hears of it.
func namesAlone(t *testing.T, b *gatewaytest.Fixture, agent *gatewaytest.UACPFake, ask naming, foreign ect.ID) {
	t.Helper()
	request, answered := began(t, b, b.Client)
	for what, of := range map[string]ect.Claims{"made of a message of his": request, "made for him": answered} {
		before, calls := children(t, b, b.Client, of.Workflow, of.ID), agent.Calls.Load()
		answer := ask(t, string(of.ID))
		after := children(t, b, b.Client, of.Workflow, of.ID)
		if len(after) != len(before)+1 || !answeredWell(answer) || agent.Calls.Load() != calls+1 {
			t.Errorf("%s: %d children became %d; answered was %q", what, len(before), len(after), gatewaytest.Short([]byte(answer)))
			continue
		}
		if unattested := string(newest(before, after).Ext[ect.ExtSourceUnattested]); unattested != "true" {
			t.Errorf("%s: unattested is %q", what, unattested)
		}
	}
	calls := agent.Calls.Load()
	for what, parent := range map[string]ect.ID{"nobody's": ect.NewID(), "another's": foreign} {
		if answer := ask(t, string(parent)); !strings.Contains(answer, "unknown_parent") {
			t.Errorf("%s: answered was %q", what, gatewaytest.Short([]byte(answer)))
		}
	}
	if agent.Calls.Load() != calls {
		t.Error("the agent was asked all the same")
	}
}

// namesBeside: beside an ECT the name must be what that says; then the ECT is the
// parent of ours, and nothing else.
func namesBeside(t *testing.T, b *gatewaytest.Fixture, agent *gatewaytest.UACPFake, ask naming, mint *lineal) {
	t.Helper()
	parent := ect.NewID() // the gateway need not know it: the token says it
	if answer := ask(t, string(parent), parent); !answeredWell(answer) {
		t.Errorf("answered was %q", gatewaytest.Short([]byte(answer)))
	}
	if ours := children(t, b, b.Client, mint.workflow, mint.last); len(ours) != 1 {
		t.Errorf("the token is the parent of %d of ours", len(ours))
	}
	if got := children(t, b, b.Client, mint.workflow, parent); len(got) != 0 {
		t.Errorf("%d tokens of ours are children of what was only named", len(got))
	}
	calls := agent.Calls.Load()
	for what, par := range map[string][]ect.ID{"of another": {ect.NewID()}, "of nothing": {}} {
		if answer := ask(t, string(parent), par...); !strings.Contains(answer, "conflicting_parents") {
			t.Errorf("%s: answered was %q", what, gatewaytest.Short([]byte(answer)))
		}
	}
	if answer := ask(t, "a-task", parent); !strings.Contains(answer, "no UUID") {
		t.Errorf("no id: answered was %q", gatewaytest.Short([]byte(answer)))
	}
	if agent.Calls.Load() != calls {
		t.Error("the agent was asked all the same")
	}
}

// newest is what one list has more than the other.
func newest(before, after []ect.Claims) ect.Claims {
	i := slices.IndexFunc(after, func(c ect.Claims) bool {
		return !slices.ContainsFunc(before, func(was ect.Claims) bool { return was.ID == c.ID })
	})
	return after[i]
}

// TestParent_AtTheTranslateEndpoint: a message names its parent inside, and its header has
// the token; or header and message name two.
func TestParent_AtTheTranslateEndpoint(t *testing.T) {
	t.Parallel()
	agent := &gatewaytest.UACPFake{}
	b := parented(t, agent, "")
	_, of := began(t, b, b.Client)
	mint, other := &lineal{b: b, workflow: of.Workflow}, ect.NewID()
	for what, c := range map[string]struct {
		par    ect.ID
		header string
		says   string
	}{
		"of the same": {par: of.ID, says: gatewaytest.Greeting},
		"of another":  {par: other, says: "conflicting_parents"},
		"in two ways": {par: of.ID, header: string(other), says: "no UUID"},
		"twice":       {par: of.ID, header: string(of.ID), says: gatewaytest.Greeting},
	} {
		frame := framed(t, uacp.FormEnveloped, string(of.ID))
		input, err := uacp.HashInput(frame)
		gatewaytest.Must(t, err)
		l := gatewaytest.HTTPRequest{At: "/aepb/translate?from=uacp-v1&dest=abacus", Media: uacp.Media, Body: string(frame), Tokens: []string{mint.token(t, input, []ect.ID{c.par})}}
		if c.header != "" {
			l.Header = map[string]string{"Aepb-Parent-Jti": c.header}
		}
		if got := b.Send(t, l); !strings.Contains(string(got.Body), c.says) {
			t.Errorf("%s: got %d %s", what, got.Status, gatewaytest.Short(got.Body))
		}
	}
	l := gatewaytest.HTTPRequest{Body: gatewaytest.TextBody(gatewaytest.Greeting), Header: map[string]string{"Aepb-Parent-Jti": string(of.ID)}, At: "/aepb/translate?from=a2a-v1&dest=abacus"}
	if got := b.Send(t, l); got.Status != http.StatusForbidden || !strings.Contains(string(got.Body), "ect_required") {
		t.Errorf("without a token: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	l.At, l.Header["A2A-Version"] = "/agents/strict/a2a", "1.0"
	if got := b.Send(t, l); !strings.Contains(string(got.Body), "required") {
		t.Errorf("where a token is required: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	l.At, l.Via = "/agents/abacus/a2a", b.Anonymous
	if got := b.Send(t, l); !strings.Contains(string(got.Body), "unknown_parent") {
		t.Errorf("of nobody in particular: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	request, _ := began(t, b, b.Anonymous)
	l.Header["Aepb-Parent-Jti"] = string(request.ID)
	if got := b.Send(t, l); !strings.Contains(string(got.Body), "unknown_parent") {
		t.Errorf("the nameless are not told apart: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	b.Works(t)
}

// TestParent_DelegatedCallsAreLinked: an agent that was sent our ECT names it, and what it asks for
// is linked to what it does it for; the gateway itself never is its own caller.
func TestParent_DelegatedCallsAreLinked(t *testing.T) {
	t.Parallel()
	arrived := make(chan []byte, 1)
	agent := &gatewaytest.UACPFake{Seen: func(body []byte) { arrived <- body }}
	b := parented(t, agent, uacp.FormTagged)
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/abacus/a2a", Body: gatewaytest.TextBody(gatewaytest.Greeting), Header: map[string]string{"A2A-Version": "1.0"}})
	b.Right(t, got, gatewaytest.Greeting)
	frame := <-arrived
	opened, err := uacp.Open(frame)
	gatewaytest.Must(t, err)
	parent, err := opened.Parent()
	gatewaytest.Must(t, err)
	ours := b.Proofs(t, got)[0]
	if opened.Form() != uacp.FormBare || parent != string(ours.ID) {
		t.Fatalf("the agent was told %q of %s, in the form %s", parent, ours.ID, opened.Form())
	}
	if ours.OutputHash != hashOf(t, frame) {
		t.Error("the token is about another frame")
	}
	who := &identity.SVID{ID: agent.Who.ID, Key: agent.Who.Key, Chain: agent.Who.Chain}
	conn := b.DialUACP(t, "concierge", who)
	gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, framed(t, uacp.FormBare, parent)))
	reply, err := gatewaytest.ReadFrameOf(conn)
	gatewaytest.Must(t, err)
	if !strings.Contains(string(reply), gatewaytest.Greeting) {
		t.Errorf("got %q", gatewaytest.Short(reply))
	}
	if got := children(t, b, b.Client, ours.Workflow, ours.ID); len(got) != 2 { // its own reply's, and what it asked for
		t.Errorf("our ECT has %d children", len(got))
	}
	// One protocol relayed: the caller's own name gives way to ours.
	_, of := began(t, b, b.Client)
	if reply := b.AskUACP(t, "abacus", framed(t, uacp.FormBare, string(of.ID))); !strings.Contains(string(reply), gatewaytest.Greeting) {
		t.Fatalf("got %q", gatewaytest.Short(reply))
	}
	f, err := uacp.ParseFrame(<-arrived)
	gatewaytest.Must(t, err)
	names := 0
	for _, o := range f.Options {
		if o.Type == uacp.OptParent {
			names++
			if hex.EncodeToString(o.Value) == strings.ReplaceAll(string(of.ID), "-", "") {
				t.Error("the agent is told what the caller named")
			}
		}
	}
	if names != 1 || len(children(t, b, b.Client, of.Workflow, of.ID)) != 1 {
		t.Errorf("%d names", names)
	}
	b.Works(t)
}

// TestUACPAgent_BareGetsNoVendorOptions: an agent that was not said to read options of vendors gets none.
func TestUACPAgent_BareGetsNoVendorOptions(t *testing.T) {
	t.Parallel()
	arrived := make(chan []byte, 1)
	b := parented(t, &gatewaytest.UACPFake{Seen: func(body []byte) { arrived <- body }}, uacp.FormBare)
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: "/agents/abacus/a2a", Body: gatewaytest.TextBody(gatewaytest.Greeting), Header: map[string]string{"A2A-Version": "1.0"}}), gatewaytest.Greeting)
	f, err := uacp.ParseFrame(<-arrived)
	gatewaytest.Must(t, err)
	for _, o := range f.Options {
		if o.Type > 0x09 {
			t.Errorf("option %#x", o.Type)
		}
	}
}

// TestParent_SLIMAgentsGetTheTokenID: beside the token in the metadata stands its name, for
// agents that read no tokens.
func TestParent_SLIMAgentsGetTheTokenID(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Plan{}
	net := gatewaytest.NewSLIMNet(t, &p)
	b := gatewaytest.NewFixture(t, p)
	notified := make(chan map[string]string, 1)
	b.SlimAgent(t, net, "adder", "", &gatewaytest.SlimFake{Seen: func(call rpc.Call) { notified <- call.Metadata }})
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/adder/a2a", Body: gatewaytest.AddBody(40), Header: map[string]string{"A2A-Version": "1.0"}})
	b.Right(t, got, "41")
	answer := <-notified
	if ours := b.Proofs(t, got)[0]; answer["aepb-parent-jti"] != string(ours.ID) || answer["execution-context"] == "" {
		t.Errorf("the agent was told %q of %s", answer["aepb-parent-jti"], ours.ID)
	}
}

func hashOf(t *testing.T, frame []byte) string {
	t.Helper()
	input, err := uacp.HashInput(frame)
	gatewaytest.Must(t, err)
	return ect.Hash(input)
}
