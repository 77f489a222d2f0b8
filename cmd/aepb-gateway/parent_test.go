package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/grpctest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// addCall asks for a sum, in MCP.
const addCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":40,"b":1},` + modernMeta + `}}`

// answeredWell: the agent has said good day, or what the sum is.
func answeredWell(answer string) bool {
	return strings.Contains(answer, "You said: "+greeting) || strings.Contains(answer, `"sum":41`)
}

// naming says good day to the agent "abacus" in one protocol, or asks it for a sum. The message names a
// parent, as it stands, and has a token whose parents are those given, if any are.
type naming func(t *testing.T, parent string, par ...ect.ID) (answer string)

// lineal mints tokens of the development client in a workflow.
type lineal struct {
	b        *bed
	workflow string
	last     ect.ID
}

func (l *lineal) token(t *testing.T, hashed []byte, par []ect.ID) string {
	t.Helper()
	recipe := l.b.recipe(string(hashed))
	recipe.Claims.Workflow, recipe.Claims.Parents = l.workflow, par
	l.last = ect.NewID()
	recipe.Claims.ID = l.last
	return ecttest.Mint(t, l.b.me, recipe)
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
	f, err := uacp.ParseFrame(frameOf(t, carriage, telling(greeting)))
	must(t, err)
	if carriage == uacp.FormBare {
		octets, _ := hex.DecodeString(strings.ReplaceAll(parent, "-", ""))
		f.Options = append(f.Options, uacp.Option{Type: uacp.OptParent, Value: octets})
	} else {
		f.Payload = []byte(named(string(f.Payload), parent))
	}
	out, err := f.Bytes()
	must(t, err)
	return out
}

// namings are the ways in which a message names its parent, by protocol.
func (b *bed) namings(t *testing.T, mint *lineal) map[string]naming {
	t.Helper()
	post := func(at, body string, more map[string]string, how func(string, string) string) naming {
		return func(t *testing.T, parent string, par ...ect.ID) string {
			t.Helper()
			said, header := how(body, parent), map[string]string{}
			maps.Copy(header, more)
			if said == body {
				header["Aepb-Parent-Jti"] = parent
			}
			l := letter{at: at, body: said, header: header}
			if par != nil {
				l.tokens = []string{mint.token(t, []byte(said), par)}
			}
			return string(b.send(t, l).body)
		}
	}
	beside := func(body, _ string) string { return body }
	caller := b.slim.join(t, "org/callers/alice", nil)
	b.slim.exposed(t, caller, "abacus")
	overSLIM := func(method string, body []byte) naming {
		return func(t *testing.T, parent string, par ...ect.ID) string {
			t.Helper()
			metadata := map[string]string{"aepb-parent-jti": parent}
			if par != nil {
				metadata["execution-context"] = mint.token(t, body, par)
			}
			f, err := askSLIM(t, caller, "abacus", method, body, metadata)
			if failed, ok := errors.AsType[*rpc.StatusError](err); ok {
				return failed.Message
			}
			must(t, err)
			return string(f.Body)
		}
	}
	inFrames := func(carriage string) naming {
		return func(t *testing.T, parent string, par ...ect.ID) string {
			t.Helper()
			frame := framed(t, carriage, parent)
			if par != nil {
				input, err := uacp.HashInput(frame)
				must(t, err)
				frame, err = uacpWithEvidence(frame, []string{mint.token(t, input, par)})
				must(t, err)
			}
			return string(b.askUACP(t, "abacus", frame))
		}
	}
	stub := b.remote(t, b.clientTLS(t, b.dev.Client))
	return map[string]naming{
		"A2A":            post("/agents/abacus/a2a", textBody(greeting), map[string]string{"A2A-Version": "1.0"}, beside),
		"MCP":            post("/agents/abacus/mcp", addCall, mirror("tools/call", "add"), beside),
		"A2A over gRPC":  b.overStub(stub, mint),
		"SLIMRPC":        overSLIM("SendMessage", inProtobuf(t, textBody(greeting))),
		"JSON-RPC":       overSLIM("", []byte(textBody(greeting))),
		"µACP":           inFrames(uacp.FormEnveloped),
		"µACP, bare":     inFrames(uacp.FormBare),
		"AINP":           b.overAINP(mint),
		"the translator": post("/aepb/translate?from=a2a-v1&dest=abacus", textBody(greeting), nil, beside),
	}
}

func (b *bed) overStub(stub *grpctest.Caller, mint *lineal) naming {
	return func(t *testing.T, parent string, par ...ect.ID) string {
		t.Helper()
		octets := request(t, "SendMessage", messageTo("abacus", greeting))
		fields := []string{"aepb-parent-jti", parent}
		if par != nil {
			fields = append(fields, headerECT, mint.token(t, octets, par))
		}
		got := stub.Call(t.Context(), "SendMessage", [][]byte{octets}, fields...)
		return strings.Join([]string{got.Code, got.Details, string(bytes.Join(got.Messages, nil))}, " ")
	}
}

func (b *bed) overAINP(mint *lineal) naming {
	alice := did("alice")
	return func(t *testing.T, parent string, par ...ect.ID) string {
		t.Helper()
		body := string(envelopeOf(t, alice, telling(greeting)))
		if !strings.Contains(body, `"aepb":{`) {
			body = strings.Replace(body, `"payload":{`, `"payload":{"aepb":{},`, 1)
		}
		said := []byte(named(body, parent))
		if par != nil {
			input, err := ainp.HashInput(said)
			must(t, err)
			said, err = ainpWithEvidence(said, []string{mint.token(t, input, par)})
			must(t, err)
		}
		return string(b.send(t, letter{at: "/agents/abacus/ainp", body: string(signed(alice, said, ainp.SigDraft))}).body)
	}
}

// began makes a workflow of a caller's own, and gives our two tokens of it.
func (b *bed) began(t *testing.T, via *http.Client) (asked, answered ect.Claims) {
	t.Helper()
	got := b.send(t, letter{via: via, at: doorA2A, body: addBody(40), header: map[string]string{"A2A-Version": "1.0"}})
	legs := b.proofs(t, got)
	if len(legs) != 2 {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	return legs[0], legs[1]
}

// children are our tokens in a workflow whose only parent is this one.
func (b *bed) children(t *testing.T, via *http.Client, workflow string, of ect.ID) (out []ect.Claims) {
	t.Helper()
	for _, claims := range b.workflow(t, via, workflow) {
		if slices.Equal(claims.Parents, []ect.ID{of}) && string(claims.Issuer) == b.self() {
			out = append(out, claims)
		}
	}
	return out
}

// workflow is what one of its members is told of it.
func (b *bed) workflow(t *testing.T, via *http.Client, workflow string) (out []ect.Claims) {
	t.Helper()
	var said struct {
		WID  string
		ECTs []string
	}
	got := b.send(t, letter{via: via, method: http.MethodGet, at: "/workflows/" + workflow})
	jsonIn(t, got.body, &said)
	for _, compact := range said.ECTs {
		claims, _, err := ect.ParseUnverified(compact)
		must(t, err)
		out = append(out, claims)
	}
	return out
}

// parented is a bed with an agent behind µACP, whose callers are the development
// client on SLIM too.
func parented(t *testing.T, agent *uacpFake, carriage string) *bed {
	t.Helper()
	p := plan{}
	net := newSLIMNet(t, &p)
	p.config.SLIM.Nodes[0].Caller = "spiffe://" + devTrustDomain + "/client"
	b := newBed(t, p)
	b.slim = net
	b.uacpAgent(t, "abacus", agent, carriage)
	return b
}

// TestParentReferences: in every protocol a message names what it came of (AEPB, Task
// Invocation with Parent Reference): by the par of its ECT, which is the parent of
// ours, or without one by a jti alone.
func TestParentReferences(t *testing.T) {
	t.Parallel()
	agent := &uacpFake{}
	b := parented(t, agent, "")
	somebody := b.as(t, "/somebody")
	_, foreign := b.began(t, somebody)
	mint := &lineal{b: b, workflow: string(ect.NewID())}
	for name, ask := range b.namings(t, mint) {
		t.Run(name, func(t *testing.T) {
			if name != "the translator" { // it demands a token
				b.namesAlone(t, agent, ask, foreign.ID)
			}
			if name == "µACP, bare" {
				return // it has no place for a token
			}
			if answer := ask(t, "a-task"); !strings.Contains(answer, "no UUID") {
				t.Errorf("no id: answered was %q", short([]byte(answer)))
			}
			b.namesBeside(t, agent, ask, mint)
		})
	}
	if got := b.children(t, somebody, foreign.Workflow, foreign.ID); len(got) != 0 {
		t.Errorf("another's token has %d children", len(got))
	}
	b.works(t)
}

// namesAlone: a message that names an ECT, and brings none, goes on with that one's
// workflow, if it concerns its sender; else the agent never hears of it.
func (b *bed) namesAlone(t *testing.T, agent *uacpFake, ask naming, foreign ect.ID) {
	t.Helper()
	asked, answered := b.began(t, b.client)
	for what, of := range map[string]ect.Claims{"made of a message of his": asked, "made for him": answered} {
		before, calls := b.children(t, b.client, of.Workflow, of.ID), agent.calls.Load()
		answer := ask(t, string(of.ID))
		after := b.children(t, b.client, of.Workflow, of.ID)
		if len(after) != len(before)+1 || !answeredWell(answer) || agent.calls.Load() != calls+1 {
			t.Errorf("%s: %d children became %d; answered was %q", what, len(before), len(after), short([]byte(answer)))
			continue
		}
		if unattested := string(newest(before, after).Ext[ect.ExtSourceUnattested]); unattested != "true" {
			t.Errorf("%s: unattested is %q", what, unattested)
		}
	}
	calls := agent.calls.Load()
	for what, parent := range map[string]ect.ID{"nobody's": ect.NewID(), "another's": foreign} {
		if answer := ask(t, string(parent)); !strings.Contains(answer, "unknown_parent") {
			t.Errorf("%s: answered was %q", what, short([]byte(answer)))
		}
	}
	if agent.calls.Load() != calls {
		t.Error("the agent was asked all the same")
	}
}

// namesBeside: beside an ECT the name must be what that says; then the ECT is the
// parent of ours, and nothing else.
func (b *bed) namesBeside(t *testing.T, agent *uacpFake, ask naming, mint *lineal) {
	t.Helper()
	parent := ect.NewID() // the gateway need not know it: the token says it
	if answer := ask(t, string(parent), parent); !answeredWell(answer) {
		t.Errorf("answered was %q", short([]byte(answer)))
	}
	if ours := b.children(t, b.client, mint.workflow, mint.last); len(ours) != 1 {
		t.Errorf("the token is the parent of %d of ours", len(ours))
	}
	if got := b.children(t, b.client, mint.workflow, parent); len(got) != 0 {
		t.Errorf("%d tokens of ours are children of what was only named", len(got))
	}
	calls := agent.calls.Load()
	for what, par := range map[string][]ect.ID{"of another": {ect.NewID()}, "of nothing": {}} {
		if answer := ask(t, string(parent), par...); !strings.Contains(answer, "conflicting_parents") {
			t.Errorf("%s: answered was %q", what, short([]byte(answer)))
		}
	}
	if answer := ask(t, "a-task", parent); !strings.Contains(answer, "no UUID") {
		t.Errorf("no id: answered was %q", short([]byte(answer)))
	}
	if agent.calls.Load() != calls {
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

// TestParentsAtTheTranslator: a message names its parent inside, and its header has
// the token; or header and message name two.
func TestParentsAtTheTranslator(t *testing.T) {
	t.Parallel()
	agent := &uacpFake{}
	b := parented(t, agent, "")
	_, of := b.began(t, b.client)
	mint, other := &lineal{b: b, workflow: of.Workflow}, ect.NewID()
	for what, c := range map[string]struct {
		par    ect.ID
		header string
		says   string
	}{
		"of the same": {par: of.ID, says: greeting},
		"of another":  {par: other, says: "conflicting_parents"},
		"in two ways": {par: of.ID, header: string(other), says: "no UUID"},
		"twice":       {par: of.ID, header: string(of.ID), says: greeting},
	} {
		frame := framed(t, uacp.FormEnveloped, string(of.ID))
		input, err := uacp.HashInput(frame)
		must(t, err)
		l := letter{at: "/aepb/translate?from=uacp-v1&dest=abacus", media: uacp.Media, body: string(frame), tokens: []string{mint.token(t, input, []ect.ID{c.par})}}
		if c.header != "" {
			l.header = map[string]string{"Aepb-Parent-Jti": c.header}
		}
		if got := b.send(t, l); !strings.Contains(string(got.body), c.says) {
			t.Errorf("%s: got %d %s", what, got.status, short(got.body))
		}
	}
	l := letter{body: textBody(greeting), header: map[string]string{"Aepb-Parent-Jti": string(of.ID)}, at: "/aepb/translate?from=a2a-v1&dest=abacus"}
	if got := b.send(t, l); got.status != http.StatusForbidden || !strings.Contains(string(got.body), "ect_required") {
		t.Errorf("without a token: got %d %s", got.status, short(got.body))
	}
	l.at, l.header["A2A-Version"] = "/agents/strict/a2a", "1.0"
	if got := b.send(t, l); !strings.Contains(string(got.body), "required") {
		t.Errorf("where a token is required: got %d %s", got.status, short(got.body))
	}
	l.at, l.via = "/agents/abacus/a2a", b.anonymous
	if got := b.send(t, l); !strings.Contains(string(got.body), "unknown_parent") {
		t.Errorf("of nobody in particular: got %d %s", got.status, short(got.body))
	}
	asked, _ := b.began(t, b.anonymous)
	l.header["Aepb-Parent-Jti"] = string(asked.ID)
	if got := b.send(t, l); !strings.Contains(string(got.body), "unknown_parent") {
		t.Errorf("the nameless are not told apart: got %d %s", got.status, short(got.body))
	}
	b.works(t)
}

// TestAgentsDelegate: an agent that was sent our ECT names it, and what it asks for
// is linked to what it does it for; the gateway itself never is its own caller.
func TestAgentsDelegate(t *testing.T) {
	t.Parallel()
	arrived := make(chan []byte, 1)
	agent := &uacpFake{seen: func(body []byte) { arrived <- body }}
	b := parented(t, agent, uacp.FormTagged)
	got := b.send(t, letter{at: "/agents/abacus/a2a", body: textBody(greeting), header: map[string]string{"A2A-Version": "1.0"}})
	b.right(t, got, greeting)
	frame := <-arrived
	opened, err := uacp.Open(frame)
	must(t, err)
	parent, err := opened.Parent()
	must(t, err)
	ours := b.proofs(t, got)[0]
	if opened.Form() != uacp.FormBare || parent != string(ours.ID) {
		t.Fatalf("the agent was told %q of %s, in the form %s", parent, ours.ID, opened.Form())
	}
	if ours.OutputHash != hashOf(t, frame) {
		t.Error("the token is about another frame")
	}
	who := &identity.SVID{ID: agent.who.ID, Key: agent.who.Key, Chain: agent.who.Chain}
	conn := b.dialUACP(t, "concierge", who)
	must(t, writeFrameTo(conn, framed(t, uacp.FormBare, parent)))
	reply, err := readFrameOf(conn)
	must(t, err)
	if !strings.Contains(string(reply), greeting) {
		t.Errorf("got %q", short(reply))
	}
	if got := b.children(t, b.client, ours.Workflow, ours.ID); len(got) != 2 { // its own reply's, and what it asked for
		t.Errorf("our ECT has %d children", len(got))
	}
	// One protocol relayed: the caller's own name gives way to ours.
	_, of := b.began(t, b.client)
	if reply := b.askUACP(t, "abacus", framed(t, uacp.FormBare, string(of.ID))); !strings.Contains(string(reply), greeting) {
		t.Fatalf("got %q", short(reply))
	}
	f, err := uacp.ParseFrame(<-arrived)
	must(t, err)
	names := 0
	for _, o := range f.Options {
		if o.Type == uacp.OptParent {
			names++
			if hex.EncodeToString(o.Value) == strings.ReplaceAll(string(of.ID), "-", "") {
				t.Error("the agent is told what the caller named")
			}
		}
	}
	if names != 1 || len(b.children(t, b.client, of.Workflow, of.ID)) != 1 {
		t.Errorf("%d names", names)
	}
	b.works(t)
}

// TestBareIsBare: an agent that was not said to read options of vendors gets none.
func TestBareIsBare(t *testing.T) {
	t.Parallel()
	arrived := make(chan []byte, 1)
	b := parented(t, &uacpFake{seen: func(body []byte) { arrived <- body }}, uacp.FormBare)
	b.right(t, b.send(t, letter{at: "/agents/abacus/a2a", body: textBody(greeting), header: map[string]string{"A2A-Version": "1.0"}}), greeting)
	f, err := uacp.ParseFrame(<-arrived)
	must(t, err)
	for _, o := range f.Options {
		if o.Type > 0x09 {
			t.Errorf("option %#x", o.Type)
		}
	}
}

// TestSLIMAgentsAreToldTheName: beside the token in the metadata stands its name, for
// agents that read no tokens.
func TestSLIMAgentsAreToldTheName(t *testing.T) {
	t.Parallel()
	p := plan{}
	net := newSLIMNet(t, &p)
	b := newBed(t, p)
	told := make(chan map[string]string, 1)
	b.slimAgent(t, net, "adder", "", &slimFake{seen: func(call rpc.Call) { told <- call.Metadata }})
	got := b.send(t, letter{at: "/agents/adder/a2a", body: addBody(40), header: map[string]string{"A2A-Version": "1.0"}})
	b.right(t, got, "41")
	said := <-told
	if ours := b.proofs(t, got)[0]; said["aepb-parent-jti"] != string(ours.ID) || said["execution-context"] == "" {
		t.Errorf("the agent was told %q of %s", said["aepb-parent-jti"], ours.ID)
	}
}

func hashOf(t *testing.T, frame []byte) string {
	t.Helper()
	input, err := uacp.HashInput(frame)
	must(t, err)
	return ect.Hash(input)
}
