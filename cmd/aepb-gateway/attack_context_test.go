package main

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
)

// talkative is an A2A agent that has dialogues: it goes on with the one that a
// message names, with any sender, or begins one.
type talkative struct {
	mu     sync.Mutex
	begun  int
	bodies []string // as they came
	heard  []string // the dialogue of each message; empty: a new one
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
	a.bodies, a.heard = append(a.bodies, string(body)), append(a.heard, at)
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
	return a.bodies[len(a.bodies)-1], a.heard[len(a.heard)-1]
}

// TestAttack_CallerJoinsAnotherCallersContext: finding 13. A caller presents the
// context id of another caller's dialogue, which the agent would let it join,
// since it takes all callers of the gateway for one. Before, that worked as soon
// as the gateway had forgotten, or never heard, whose dialogue it is. Now an id
// passes only if it is on record for this very caller; any other leads to a
// dialogue of the caller's own.
func TestAttack_CallerJoinsAnotherCallersContext(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	agent := &talkative{}
	server := httptest.NewUnstartedServer(agent)
	server.TLS = serving(b.svid(t, "/talkative"))
	server.StartTLS()
	t.Cleanup(server.Close)
	must(t, b.directory.Put(directory.Agent{
		Name: "talkative", Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: server.URL}},
	}))
	mallory := b.caller(t, b.svid(t, "/mallory"))
	body := func(contextID string) string {
		return strings.Replace(textBody("hi"), `"messageId"`, `"contextId":"`+contextID+`","messageId"`, 1)
	}
	say := func(via *http.Client, contextID string) (heard, told string) {
		t.Helper()
		text := body(contextID)
		if contextID == "" {
			text = textBody("hi")
		}
		got := b.send(t, letter{via: via, at: "/agents/talkative/a2a", body: text, header: map[string]string{"A2A-Version": "1.0"}})
		var answer struct {
			Result struct{ Message struct{ ContextID string } }
		}
		if err := json.Unmarshal(got.body, &answer); err != nil || answer.Result.Message.ContextID == "" {
			t.Fatalf("%d %s", got.status, got.body)
		}
		_, heard = agent.last()
		return heard, answer.Result.Message.ContextID
	}
	_, victims := say(b.client, "")
	if heard, _ := say(mallory, victims); heard == victims || heard == "" {
		t.Errorf("another caller joined the dialogue as %q", heard)
	}
	// The gateway has no record of this one: it was forgotten, or had elsewhere.
	if heard, _ := say(mallory, "forgotten"); heard == "forgotten" {
		t.Error("another caller joined a dialogue that the gateway has forgotten")
	}
	call := strings.Replace(callBody("s", "hi"), `"message":"hi"`, `"message":"hi","context_id":"forgotten"`, 1)
	b.right(t, b.send(t, letter{via: mallory, at: "/agents/talkative/mcp", body: call, header: mirror("tools/call", "s")}), "done")
	if _, heard := agent.last(); heard == "forgotten" || heard == "" {
		t.Errorf("another caller joined a forgotten dialogue over another protocol, as %q", heard)
	}
	// What is one's own goes on, byte by byte, and so does what a caller names itself.
	if heard, told := say(b.client, victims); heard != victims || told != victims {
		t.Errorf("the owner's dialogue goes on as %q, %q", heard, told)
	}
	if exact, _ := agent.last(); exact != body(victims) {
		t.Errorf("a relay of the owner's message is not exact: %s", exact)
	}
	first, told := say(b.client, "my-own")
	again, _ := say(b.client, "my-own")
	adopted, _ := say(b.client, first)
	if first == "my-own" || again != first || adopted != first || told != "my-own" {
		t.Errorf("a dialogue that its caller names is %q, %q, %q, told %q", first, again, adopted, told)
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
	b := newBed(t, plan{})
	tools, talker := &fake{conduct: well}, &fake{conduct: well}
	b.serve(t, "tools", "mcp-v1", tools, host{})
	b.serve(t, "talker", "a2a-v1", talker, host{})
	mcpBody, a2aBody := callBody("echo", "x"), textBody("hi")
	v1 := map[string]string{"A2A-Version": "1.0"}
	send := func(door, old, now string) reply {
		if door == "mcp" {
			return b.send(t, letter{at: "/agents/tools/mcp", body: strings.Replace(mcpBody, old, now, 1), header: mirror("tools/call", "echo")})
		}
		return b.send(t, letter{at: "/agents/talker/a2a", body: strings.Replace(a2aBody, old, now, 1), header: v1})
	}
	b.right(t, send("mcp", "", ""), "done")
	b.right(t, send("a2a", "", ""), "done")
	for name, c := range map[string]struct{ door, old, now string }{
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
		before := tools.calls.Load() + talker.calls.Load()
		got := send(c.door, c.old, c.now)
		if !strings.Contains(string(got.body), `"error"`) || tools.calls.Load()+talker.calls.Load() != before {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}
