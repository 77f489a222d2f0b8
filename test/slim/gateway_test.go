package slim_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	a2apb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// bytesOf is a message of the official library, in protobuf and base64.
func bytesOf(t *testing.T, m proto.Message, text string) string {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	bytes, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(bytes)
}

const helperCard = `{"name":"helper","description":"helps","version":"1","capabilities":{"streaming":true},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],` +
	`"supportedInterfaces":[{"url":"org/agents/helper","protocolBinding":"slimrpc","protocolVersion":"1.0"}],"skills":[{"id":"help","name":"Help","description":"helps","tags":["x"]}]}`

// helper is an official SLIMRPC server with A2A's service; streaming agents say
// so in their cards, and then are asked for streams alone.
func (w *world) helper(t *testing.T, name string, streaming bool, methods job) *peer {
	t.Helper()
	card := helperCard
	if !streaming {
		card = strings.Replace(card, `"streaming":true`, `"streaming":false`, 1)
	}
	methods["GetExtendedAgentCard"] = job{"body": bytesOf(t, &a2apb.AgentCard{}, card)}
	return w.app(t, name, job{"a2a": job{"service": "lf.a2a.v1.A2AService", "methods": methods}})
}

func message(text string) *a2a.Message {
	return a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
}

// requested is one call that an official server got.
type requested struct {
	Method, Body string
	Metadata     map[string]string
}

func calls(t *testing.T, p *peer, method string) []requested {
	t.Helper()
	var got struct{ Calls []requested }
	p.do(t, job{"job": "seen"}, &got)
	var of []requested
	for _, call := range got.Calls {
		if call.Method == method {
			of = append(of, call)
		}
	}
	return of
}

// attested verifies a token of the gateway's: signature, chain and what it says
// of a message's bytes.
func (w *world) attested(t *testing.T, compact, claim string, bytes []byte) jwt.MapClaims {
	t.Helper()
	claims := jwt.MapClaims{}
	_, err := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"})).ParseWithClaims(compact, claims, func(token *jwt.Token) (any, error) {
		chain, _ := token.Header["x5c"].([]any)
		if len(chain) == 0 {
			return nil, errors.New("no chain")
		}
		first, _ := chain[0].(string)
		der, err := base64.StdEncoding.DecodeString(first)
		if err != nil {
			return nil, err
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		_, err = leaf.Verify(x509.VerifyOptions{Roots: w.trust.Roots(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return leaf.PublicKey, err
	})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bytes)
	if got, _ := claims[claim].(string); !strings.HasSuffix(got, base64.RawURLEncoding.EncodeToString(sum[:])) {
		t.Errorf("%s is %v, and the bytes are %q", claim, claims[claim], bytes)
	}
	return claims
}

// TestGateway_A2AClientToOfficialServer: an A2A client reaches an agent on an
// official SLIMRPC server, through a real node.
func TestGateway_A2AClientToOfficialServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const done = `{"message":{"messageId":"m-2","contextId":"c-1","role":"ROLE_AGENT","parts":[{"text":"here you are"},{"data":{"n":[1,2.5,null]}}]}}`
	plain := w.helper(t, "org/agents/plain", false, job{
		"SendMessage": job{"body": bytesOf(t, &a2apb.SendMessageResponse{}, done)},
		"GetTask":     job{"code": 5, "message": "TaskNotFoundError: no such task"},
	})
	w.helper(t, "org/agents/broken", false, job{"SendMessage": job{"code": 3, "message": "InvalidParamsError: you said nothing"}})
	w.helper(t, "org/agents/mute", false, job{})
	item := func(text string) string { return bytesOf(t, &a2apb.StreamResponse{}, text) }
	w.helper(t, "org/agents/stream", true, job{"SendStreamingMessage": job{"stream": []string{
		item(`{"task":{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING"}}}`),
		item(`{"artifactUpdate":{"taskId":"t-1","contextId":"c-1","artifact":{"artifactId":"a","parts":[{"text":"piece"}]}}}`),
		item(`{"statusUpdate":{"taskId":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED"}}}`),
	}}})
	var entries strings.Builder
	entries.WriteString("\nagents:\n")
	for _, name := range []string{"plain", "broken", "mute", "stream", "nobody"} {
		fmt.Fprintf(&entries, "  %s: %s\n", name, w.far("org/agents/"+name, id(name), ""))
	}
	g := w.gateway(t, "first", w.on("first", "")+entries.String())

	call := func(t *testing.T, agent string, m *a2a.Message) (peers.A2AReply, *keeper, error) {
		t.Helper()
		client, record := w.recorded(t)
		got, err := peers.A2ACall(t.Context(), client, g.public+"/agents/"+agent, m)
		return got, record, err
	}
	t.Run("unary", func(t *testing.T) {
		got, record, err := call(t, "plain", message("please"))
		if err != nil || !strings.HasPrefix(got.Text(), "here you are") {
			t.Fatalf("%q %v", got.Text(), err)
		}
		seen := calls(t, plain, "SendMessage")
		if len(seen) != 1 || seen[0].Metadata["a2a-version"] != "1.0" {
			t.Fatalf("%+v", seen)
		}
		body, err := base64.StdEncoding.DecodeString(seen[0].Body)
		if err != nil {
			t.Fatal(err)
		}
		var request a2apb.SendMessageRequest
		if err := proto.Unmarshal(body, &request); err != nil || request.GetMessage().GetParts()[0].GetText() != "please" {
			t.Errorf("%v %v", &request, err)
		}
		sent := w.attested(t, seen[0].Metadata["execution-context"], "out_hash", body)
		answered := w.attested(t, record.evidence()[1], "inp_hash", content(t, &a2apb.SendMessageResponse{}, done))
		if sent["wid"] != answered["wid"] || sent["iss"] != id("first") || answered["iss"] != id("first") {
			t.Errorf("%v\n%v", sent, answered)
		}
	})
	for name, want := range map[string]string{
		"broken": "you said nothing", "mute": "Method not found: lf.a2a.v1.A2AService/SendMessage",
		"nobody": "card request failed, status: 504 Gateway Timeout",
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := call(t, name, message("please"))
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
	t.Run("stream", func(t *testing.T) {
		client, _ := w.recorded(t)
		card, err := agentcard.NewResolver(client).Resolve(t.Context(), g.public+"/agents/stream")
		if err != nil {
			t.Fatal(err)
		}
		agent, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(client))
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for event, err := range agent.SendStreamingMessage(t.Context(), &a2a.SendMessageRequest{Message: message("please")}) {
			if err != nil {
				t.Fatal(err)
			}
			switch event.(type) {
			case *a2a.Task:
				kinds = append(kinds, "task")
			case *a2a.TaskArtifactUpdateEvent:
				kinds = append(kinds, "artifact")
			case *a2a.TaskStatusUpdateEvent:
				kinds = append(kinds, "status")
			}
		}
		if strings.Join(kinds, " ") != "task artifact status" {
			t.Errorf("%v", kinds)
		}
	})
	t.Run("too large, and the connection lives", func(t *testing.T) {
		_, _, err := call(t, "plain", message(strings.Repeat("x", 5<<20)))
		if err == nil || !strings.HasSuffix(err.Error(), "413 Request Entity Too Large") {
			t.Errorf("5 MiB: %v", err)
		}
		if got, _, err := call(t, "plain", message("again")); err != nil || !strings.HasPrefix(got.Text(), "here you are") {
			t.Errorf("%q %v", got.Text(), err)
		}
	})
}

func content(t *testing.T, m proto.Message, text string) []byte {
	t.Helper()
	out, err := base64.StdEncoding.DecodeString(bytesOf(t, m, text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGateway_OfficialAppToMCPServer: a real application speaks MCP on a plain
// session with an MCP server behind the gateway.
func TestGateway_OfficialAppToMCPServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, toolbox := w.toolbox(t)
	g := w.gateway(t, "first", w.on("first", "spiffe://"+domain+"/client")+"\nagents: {toolbox: "+toolbox+"}")
	g.await(t, "connected to the SLIM node")
	alice := w.app(t, "org/agents/alice", nil)
	var h handle
	eventually(t, func() error {
		return alice.begin(t, job{"job": "open", "app": "org/agents/alice", "to": "org/first/toolbox"})(&h)
	})
	ask := func(t *testing.T, body string, metadata job) received {
		t.Helper()
		alice.do(t, job{"job": "publish", "session": h.Session, "body": body, "metadata": metadata}, nil)
		var got received
		alice.do(t, job{"job": "receive", "session": h.Session}, &got)
		return got
	}
	for _, step := range []struct{ name, body, want string }{
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"alice","version":"1"}}}`, `"protocolVersion":"2025-06-18"`},
		{"tools", `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"echo"`},
		{"ping", `{"jsonrpc":"2.0","id":"p","method":"ping"}`, `{"jsonrpc":"2.0","id":"p","result":{}}`},
		{"no such method", `{"jsonrpc":"2.0","id":4,"method":"nothing/here"}`, `"code":-32601`},
		{"no such tool", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"nothing","arguments":{}}}`, `"code":-32602`},
		{"bad evidence", `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}`, `"error"`},
	} {
		t.Run(step.name, func(t *testing.T) {
			metadata := job{}
			if step.name == "bad evidence" {
				metadata["execution-context"] = "a.b.c"
			}
			if got := ask(t, step.body, metadata); !strings.Contains(got.Body, step.want) || !json.Valid([]byte(got.Body)) {
				t.Errorf("%+v, want %s", got, step.want)
			}
		})
	}
	t.Run("call", func(t *testing.T) {
		body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":9007199254740993,"b":2}}}`
		got := ask(t, body, nil)
		if !strings.Contains(got.Body, "9007199254740995") || !strings.Contains(got.Body, `"id":7`) {
			t.Fatalf("%+v", got)
		}
		tokens := strings.Split(got.Metadata["execution-context"], ",")
		if len(tokens) != 2 {
			t.Fatalf("%d tokens", len(tokens))
		}
		w.attested(t, tokens[0], "inp_hash", []byte(body))
		reply := w.attested(t, tokens[1], "out_hash", []byte(got.Body))
		wid, _ := reply["wid"].(string)
		tree := g.ctl(t, "dag", "-v", wid)
		if strings.Count(tree, ", verified") != 2 || !strings.Contains(tree, "slim-v1 → mcp-v1") || !strings.Contains(tree, "mcp-v1 → slim-v1") {
			t.Error(tree)
		}
	})
}

// eventually tries until something works.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	ctx := limited(t, 40*time.Second)
	for err := try(); err != nil; err = try() {
		if wait(t, 200*time.Millisecond); ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestGateway_OutlivesIdleMinuteAndNodeRestart, after a minute in which nobody said anything.
func TestGateway_OutlivesIdleMinuteAndNodeRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	methods := func() job {
		return job{"SendMessage": job{"body": bytesOf(t, &a2apb.SendMessageResponse{}, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"awake"}]}}`)}}
	}
	w.helper(t, "org/agents/helper", false, methods())
	g := w.gateway(t, "first", w.on("first", "")+"\nagents: {helper: "+w.far("org/agents/helper", id("helper"), "")+"}")
	call := func(ctx context.Context, client *http.Client) error {
		got, err := peers.A2ACall(ctx, client, g.public+"/agents/helper", message("awake?"))
		if err == nil && got.Text() != "awake" {
			err = errors.New(got.Text())
		}
		return err
	}
	client := w.client(t)
	if err := call(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	wait(t, idle)
	if err := call(t.Context(), client); err != nil {
		t.Fatalf("after an idle minute: %v", err)
	}
	w.node.stop()
	w.startNode(t)
	w.helper(t, "org/agents/helper", false, methods())
	eventually(t, func() error { return call(t.Context(), client) })
}

// TestGateway_MCPClientToOfficialServer: an MCP client of the SDK calls what is
// an agent on an official SLIMRPC server.
func TestGateway_MCPClientToOfficialServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.app(t, "org/agents/helper", answering(t, "here you are"))
	g := w.gateway(t, "first", w.on("first", "")+"\nagents: {helper: "+w.far("org/agents/helper", id("helper"), "")+"}")
	for _, legacy := range []bool{false, true} {
		got, err := peers.MCPCall(t.Context(), w.client(t), g.public+"/agents/helper/mcp", legacy, "help", json.RawMessage(`{"message":"please"}`))
		if err != nil || !strings.Contains(got.Text(), "here you are") {
			t.Errorf("legacy %t: %q %v", legacy, got.Text(), err)
		}
	}
}

// TestGateway_OfficialAppToA2AAgent: a real application speaks A2A's
// JSON-RPC on a plain session with an A2A agent of the SDK.
func TestGateway_OfficialAppToA2AAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agent, err := peers.NewA2AAgent(t.Context(), peers.Deps{TLS: w.svid(t, "concierge")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Stop(context.Background()) })
	g := w.gateway(t, "first", w.on("first", "spiffe://"+domain+"/client")+fmt.Sprintf(`
agents: {concierge: {id: %q, endpoints: [{binding: a2a-v1, url: %q}], callers: ["spiffe://%s/*"]}}`, id("concierge"), agent.URL(), domain))
	g.await(t, "connected to the SLIM node")
	alice := w.app(t, "org/agents/alice", nil)
	body := `{"jsonrpc":"2.0","id":"q","method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"good evening"}]}}}`
	got, err := say(t, alice, "org/agents/alice", "org/first/concierge", body)
	if err != nil || !strings.Contains(got.Body, "You said: good evening") || !strings.Contains(got.Body, `"id":"q"`) {
		t.Errorf("%+v %v", got, err)
	}
	if tokens := strings.Split(got.Metadata["execution-context"], ","); len(tokens) != 2 {
		t.Errorf("%d tokens", len(tokens))
	}
}
