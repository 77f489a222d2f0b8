package attacks

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// talkative is an A2A agent that has dialogues: it goes on with the one that a
// message names, with any sender, or begins one.
type talkative struct {
	mu       sync.Mutex
	begun    int
	bodies   []string // as they came
	received []string // the dialogue of each message; empty: a new one
}

func (a *talkative) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, `{"name":"T","description":"d","version":"1","capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],`+
			`"supportedInterfaces":[{"url":"https://`+r.Host+`/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"skills":[{"id":"s","name":"S","description":"d","tags":["x"]}]}`)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var request struct {
		ID     json.RawMessage
		Params struct{ Message struct{ ContextID string } }
	}
	if json.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at := request.Params.Message.ContextID
	a.bodies, a.received = append(a.bodies, string(body)), append(a.received, at)
	if at == "" {
		a.begun++
		at = "dialogue-" + strconv.Itoa(a.begun)
	}
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(request.ID)+`,"result":{"message":{"messageId":"r","contextId":"`+at+`","role":"ROLE_AGENT","parts":[{"text":"done"}]}}}`)
}

// last is the latest message that the agent heard, and its dialogue.
func (a *talkative) last() (body, dialogue string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bodies[len(a.bodies)-1], a.received[len(a.received)-1]
}

// TestAttack_CallerJoinsAnotherCallersContext: finding 13. A caller presents the
// context id of another caller's dialogue, which the agent would let it join,
// since it takes all callers of the gateway for one. Before, that worked as soon
// as the gateway had forgotten, or never heard, whose dialogue it is. Now an id
// passes only if it is on record for this very caller; any other leads to a
// dialogue of the caller's own.
func TestAttack_CallerJoinsAnotherCallersContext(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent := &talkative{}
	server := httptest.NewUnstartedServer(agent)
	server.TLS = gatewaytest.Serving(b.SVID(t, "/talkative"))
	server.StartTLS()
	t.Cleanup(server.Close)
	gatewaytest.Must(t, b.Directory().Put(directory.Agent{
		Name: "talkative", Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: server.URL}},
	}))
	mallory := b.Caller(t, b.SVID(t, "/mallory"))
	body := func(contextID string) string {
		return strings.Replace(gatewaytest.TextBody("hi"), `"messageId"`, `"contextId":"`+contextID+`","messageId"`, 1)
	}
	say := func(via *http.Client, contextID string) (received, notice string) {
		t.Helper()
		text := body(contextID)
		if contextID == "" {
			text = gatewaytest.TextBody("hi")
		}
		got := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/talkative/a2a", Body: text, Header: map[string]string{"A2A-Version": "1.0"}})
		var answer struct {
			Result struct{ Message struct{ ContextID string } }
		}
		if err := json.Unmarshal(got.Body, &answer); err != nil || answer.Result.Message.ContextID == "" {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		_, received = agent.last()
		return received, answer.Result.Message.ContextID
	}
	_, victims := say(b.Client, "")
	if received, _ := say(mallory, victims); received == victims || received == "" {
		t.Errorf("another caller joined the dialogue as %q", received)
	}
	// The gateway has no record of this one: it was forgotten, or had elsewhere.
	if received, _ := say(mallory, "forgotten"); received == "forgotten" {
		t.Error("another caller joined a dialogue that the gateway has forgotten")
	}
	call := strings.Replace(gatewaytest.CallBody("s", "hi"), `"message":"hi"`, `"message":"hi","context_id":"forgotten"`, 1)
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{Via: mallory, At: "/agents/talkative/mcp", Body: call, Header: gatewaytest.Mirror("tools/call", "s")}), "done")
	if _, received := agent.last(); received == "forgotten" || received == "" {
		t.Errorf("another caller joined a forgotten dialogue over another protocol, as %q", received)
	}
	// What is one's own goes on, byte by byte, and so does what a caller names itself.
	if received, notice := say(b.Client, victims); received != victims || notice != victims {
		t.Errorf("the owner's dialogue goes on as %q, %q", received, notice)
	}
	if exact, _ := agent.last(); exact != body(victims) {
		t.Errorf("a relay of the owner's message is not exact: %s", exact)
	}
	first, notice := say(b.Client, "my-own")
	again, _ := say(b.Client, "my-own")
	adopted, _ := say(b.Client, first)
	if first == "my-own" || again != first || adopted != first || notice != "my-own" {
		t.Errorf("a dialogue that its caller names is %q, %q, %q, told %q", first, again, adopted, notice)
	}
	if theirs, _ := say(mallory, "my-own"); theirs == first {
		t.Error("two callers who chose the same name share a dialogue")
	}
	if joined, _ := say(mallory, first); joined == first {
		t.Error("another caller joined by the name that the agent knows")
	}
}

// TestAttack_MemberInAnotherCase: finding 18. A message that is relayed as it
// came, within one protocol, holds a member in another case ("Name") beside the
// one that the gateway judges ("name"), or in its place. An agent that reads
// member names without regard to case, as Go's encoding/json does, would obey
// the other one. Before, such a message was relayed. Now it is refused.
func TestAttack_MemberInAnotherCase(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	tools, talker := &gatewaytest.Fake{Conduct: gatewaytest.Well}, &gatewaytest.Fake{Conduct: gatewaytest.Well}
	b.Serve(t, "tools", "mcp-v1", tools, gatewaytest.Host{})
	b.Serve(t, "talker", "a2a-v1", talker, gatewaytest.Host{})
	mcpBody, a2aBody := gatewaytest.CallBody("echo", "x"), gatewaytest.TextBody("hi")
	v1 := map[string]string{"A2A-Version": "1.0"}
	send := func(endpoint, old, now string) gatewaytest.Reply {
		if endpoint == "mcp" {
			return b.Send(t, gatewaytest.HTTPRequest{At: "/agents/tools/mcp", Body: strings.Replace(mcpBody, old, now, 1), Header: gatewaytest.Mirror("tools/call", "echo")})
		}
		return b.Send(t, gatewaytest.HTTPRequest{At: "/agents/talker/a2a", Body: strings.Replace(a2aBody, old, now, 1), Header: v1})
	}
	b.Right(t, send("mcp", "", ""), "done")
	b.Right(t, send("a2a", "", ""), "done")
	for name, c := range map[string]struct{ endpoint, old, now string }{
		"another tool":            {"mcp", `"name":"echo"`, `"name":"echo","Name":"add"`},
		"another tool, first":     {"mcp", `"name":"echo"`, `"NAME":"add","name":"echo"`},
		"other arguments":         {"mcp", `"arguments":`, `"Arguments":{"message":"y"},"arguments":`},
		"another method":          {"mcp", `"method":`, `"Method":"tools/list","method":`},
		"other parameters":        {"mcp", `"params":`, `"Params":{},"params":`},
		"another letter":          {"mcp", `"arguments":`, `"argument\u017f":{},"arguments":`},
		"another context":         {"a2a", `"messageId"`, `"contextId":"mine","ContextID":"theirs","messageId"`},
		"a context, and no other": {"a2a", `"messageId"`, `"contextid":"theirs","messageId"`},
		"a task":                  {"a2a", `"messageId"`, `"taskID":"theirs","messageId"`},
		"references":              {"a2a", `"messageId"`, `"ReferenceTaskIds":["theirs"],"messageId"`},
		"another message":         {"a2a", `"message":`, `"Message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"no"}]},"message":`},
	} {
		before := tools.Calls.Load() + talker.Calls.Load()
		got := send(c.endpoint, c.old, c.now)
		if !strings.Contains(string(got.Body), `"error"`) || tools.Calls.Load()+talker.Calls.Load() != before {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
}
