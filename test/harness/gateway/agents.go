package gatewaytest

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// MCPHeader is the header of a legacy MCP request.
func MCPHeader(version string) map[string]string {
	return map[string]string{"Mcp-Protocol-Version": version, "Accept": "application/json, text/event-stream"}
}

// LegacyCall calls a tool with arguments, in a revision before 2026-07-28.
func LegacyCall(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
}

// ModernCall is the body of a call of a tool in MCP of 2026-07-28. arguments is a JSON object.
func ModernCall(tool, arguments string) string {
	return strings.Replace(CallBody(tool, ""), `{"message":""}`, arguments, 1)
}

// Counts looks for a line among the metrics.
func (b *Fixture) Counts(t *testing.T, line string) {
	t.Helper()
	got := b.Send(t, HTTPRequest{Via: b.Caller(t, b.SVID(t, ApproverPath)), Method: http.MethodGet, At: b.At.Admin + "/metrics"})
	if !strings.Contains(string(got.Body), "\n"+line+"\n") {
		at := strings.Index(string(got.Body), line[:strings.IndexByte(line, '{')+1])
		t.Errorf("no %q among the metrics: %s", line, Short(got.Body[max(at, 0):]))
	}
}

// Signing makes a token now.
func Signing(t *testing.T, who *ecttest.Party, c ect.Claims) string {
	t.Helper()
	token, err := who.Signer(t, time.Now).Sign(c)
	Must(t, err)
	return token.Compact()
}

// NextData is the data of the next event.
func NextData(t *testing.T, stream *bufio.Scanner) string {
	t.Helper()
	for stream.Scan() {
		if data, ok := strings.CutPrefix(stream.Text(), "data: "); ok {
			return data
		}
	}
	t.Fatalf("the stream has ended: %v", stream.Err())
	return ""
}

// CardOf is an agent's card, fetched with these header fields.
func (b *Fixture) CardOf(t *testing.T, agent string, header map[string]string) map[string]json.RawMessage {
	t.Helper()
	got := b.Send(t, HTTPRequest{Method: http.MethodGet, At: "/agents/" + agent + "/.well-known/agent-card.json", Media: "-", Header: header})
	if got.Status != http.StatusOK {
		t.Fatalf("no card: %d %s", got.Status, got.Body)
	}
	var card map[string]json.RawMessage
	Must(t, json.Unmarshal(got.Body, &card))
	return card
}

// Everybody is a gateway with a simulator of agents of every protocol behind it.
func Everybody(t *testing.T) *Simulator {
	t.Helper()
	p := Plan{Also: []server.Factory{SpeakToy}}
	p.Config.Policy.CircuitSamples = 10_000 // agents fail as their parts have it
	p.Config.Limits.MemoryMiB = 8192        // one caller has hundreds of plays under way at once
	net := NewSLIMNet(t, &p)
	p.Config.SLIM.Nodes[0].Caller = "spiffe://" + TrustDomain + "/troupe"
	b := NewFixture(t, p)
	b.Slim = net
	return NewSimulator(t, b, SpeakToy)
}

// Knows tells a gateway of others, by their URLs.
func (b *Fixture) Knows(t *testing.T, others ...*Fixture) {
	t.Helper()
	var list []directory.Peer
	for _, other := range others {
		list = append(list, directory.Peer{
			ID: other.Dev.Gateway.ID, URL: other.At.Public + "/aepb/translate", Rules: policy.Rules{Open: true},
		})
	}
	Must(t, b.Directory().UsePeers(list))
}

// Hired are those of the sides whose agents the gateway lists now.
func (tr *Simulator) Hired(t *testing.T, names []string) []Side {
	t.Helper()
	var out []Side
	for _, s := range tr.Sides() {
		if slices.Contains(names, s.Name) && tr.Hires(t, s) {
			out = append(out, s)
		}
	}
	if len(out) != len(names) {
		t.Fatalf("%d of the sides %q have agents", len(out), names)
	}
	return out
}

// Beside starts another gateway of the same trust domain, under an identity of
// its own.
func (b *Fixture) Beside(t *testing.T, name string, c config.Config) *Fixture {
	t.Helper()
	return b.Besides(t, name, Plan{Config: c})
}

// Besides is [Fixture.Beside] with a whole plan. The other gateway shares the folder, the callers and the judge of this
// one, has no agents of its own, and runs until the test ends; the test fails if it does not start.
func (b *Fixture) Besides(t *testing.T, name string, p Plan) *Fixture {
	t.Helper()
	other := &Fixture{
		Logs: &Journal{}, AdminToken: b.AdminToken, Dir: b.Dir, Me: b.Me, Client: b.Client, Anonymous: b.Anonymous, Judge: b.Judge,
		Dev: &identity.Development{Authority: b.Dev.Authority, Gateway: b.SVID(t, "/"+name), Client: b.Dev.Client, Bundle: b.Dev.Bundle},
	}
	other.Start(t, p)
	return other
}

// Restored is what an agent says of a rollback that it completed.
func Restored(request ect.Claims) ect.Ext {
	ext := ect.Ext{}
	ext.SetString(ect.ExtStatus, "completed")
	ext.SetString(ect.ExtCheckpointID, string(request.Parents[0]))
	return ext
}

// Undoes lets a fake set checkpoints, and go back to them.
func (b *Fixture) Undoes(t *testing.T, f *UACPFake) func(string) string {
	t.Helper()
	return func(compact string) string {
		claims, _, err := ect.ParseUnverified(compact)
		if err != nil {
			return ""
		}
		c := ect.Claims{Audience: []string{b.Self()}, Workflow: claims.Workflow, Parents: []ect.ID{claims.ID}, Act: "atd:checkpoint"}
		if claims.Act == ect.ActRollbackRequest {
			c.Act, c.OutputHash, c.Ext = ect.ActRollbackResult, ect.Hash([]byte("as it was")), Restored(claims)
		}
		return ecttest.Mint(t, f.Who, ecttest.Recipe{Claims: c})
	}
}

// Signal is a message that is a token, from the development client.
func (b *Fixture) Signal(t *testing.T, m *canonical.Message) []byte {
	t.Helper()
	m.Phase, m.Correlation.WireID = canonical.PhaseRequest, json.RawMessage("43")
	wire, _, err := uacp.New(translators.Config{}).Encode(m, translators.Target{Form: uacp.FormEnveloped})
	Must(t, err)
	return wire.Body
}

// ToldTask is a task as A2A 1.0 tells it, as much of it as is of interest here.
type ToldTask struct {
	ID     string
	Status struct {
		State     string
		Timestamp time.Time
	}
	History []struct {
		MessageID string `json:"messageId"`
		Role      string
		Parts     []struct {
			Text string
			Data json.RawMessage
		}
	}
}

// TasksIn are the tasks and the statuses of tasks in an answer, one or a stream.
func TasksIn(t *testing.T, got Reply) (tasks []ToldTask) {
	t.Helper()
	type result struct {
		Task         *ToldTask
		StatusUpdate *ToldTask `json:"statusUpdate"`
		Tasks        []ToldTask
		ToldTask
	}
	for line := range strings.Lines(string(got.Body)) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var reply struct{ Result result }
		Must(t, json.Unmarshal([]byte(line), &reply))
		switch r := reply.Result; {
		case r.Task != nil:
			tasks = append(tasks, *r.Task)
		case r.StatusUpdate != nil:
			tasks = append(tasks, *r.StatusUpdate)
		case r.Tasks != nil:
			tasks = append(tasks, r.Tasks...)
		case r.ID != "":
			tasks = append(tasks, r.ToldTask)
		}
	}
	if got.Status != http.StatusOK || len(tasks) == 0 {
		t.Fatalf("no task: %d %s", got.Status, got.Body)
	}
	return tasks
}

// Five is a gateway with agents of every protocol behind it.
func Five(t *testing.T) *Fixture {
	t.Helper()
	p := Plan{}
	net := NewSLIMNet(t, &p)
	b := NewFixture(t, p)
	b.Slim = net
	b.SlimAgent(t, net, "adder", slim.VersionA2A, &SlimFake{})
	b.SlimAgent(t, net, "sums", slim.VersionMCP(mcp.LegacyJune), &SlimFake{})
	b.UACPAgent(t, "abacus", &UACPFake{}, "")
	b.UACPAgent(t, "beads", &UACPFake{}, uacp.FormBare)
	b.AINPAgent(t, "scribe", &AINPFake{}, directory.Endpoint{DID: Did("scribe").DID})
	b.AINPAgent(t, "clerk", &AINPFake{profile: ainp.SigRaw}, directory.Endpoint{Signature: directory.SignatureRaw})
	return b
}

// CoversUACP verifies what came in an enveloped reply, the newest first.
func (b *Fixture) CoversUACP(t *testing.T, reply []byte, carriage string) {
	t.Helper()
	tokens, err := UACPEvidence(reply)
	Must(t, err)
	input, err := uacp.HashInput(reply)
	Must(t, err)
	b.CoversReply(t, tokens, input, carriage == uacp.FormEnveloped)
}

// CoversReply verifies the tokens that came with a reply. inside says that the reply has a place for tokens: then there
// must be two, one of them over the input of the reply's hash; otherwise there may be none. What differs is an error of
// the test, and a token that does not verify ends it.
func (b *Fixture) CoversReply(t *testing.T, tokens []string, input []byte, inside bool) {
	t.Helper()
	if !inside {
		if len(tokens) != 0 {
			t.Errorf("%d tokens where there is no place for any", len(tokens))
		}
		return
	}
	covered := false
	for _, compact := range tokens {
		v, err := b.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		Must(t, err)
		covered = covered || v.Claims().OutputHash == ect.Hash(input)
	}
	if len(tokens) != 2 || !covered {
		t.Errorf("%d tokens, covering the reply: %t", len(tokens), covered)
	}
}

// Greeting is the text that agents which repeat what they are told are sent.
const Greeting = "good day"
