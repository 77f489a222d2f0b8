package negative

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/slim"
)

// slimRefusal is what a member sends, and how exactly it is refused: on SLIMRPC
// by a status and the name before its text, in JSON-RPC by a code.
type slimRefusal struct {
	name     string
	agent    string // "": calculator
	service  string // "": A2A's
	method   string // "": JSON-RPC
	body     func(t *testing.T, b *gatewaytest.Fixture) []byte
	metadata map[string]string
	want     string
}

func bytesOf(text string) func(*testing.T, *gatewaytest.Fixture) []byte {
	return func(*testing.T, *gatewaytest.Fixture) []byte { return []byte(text) }
}

func packed(text string) func(*testing.T, *gatewaytest.Fixture) []byte {
	return func(t *testing.T, _ *gatewaytest.Fixture) []byte { t.Helper(); return gatewaytest.InProtobuf(t, text) }
}

func slimRefusals() []slimRefusal {
	const send = "SendMessage"
	good := packed(gatewaytest.AddBody(40))
	call := func(params string) func(*testing.T, *gatewaytest.Fixture) []byte {
		return bytesOf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`)
	}
	add := call(`{"name":"add","arguments":{"a":1,"b":2}}`)
	evidence := func(tokens string) map[string]string { return map[string]string{"execution-context": tokens} }
	return []slimRefusal{
		{name: "no such service", service: "else.v1.Service", method: send, body: good, want: "12 no such service"},
		{name: "no such method", method: "Fly", body: good, want: "12 MethodNotFoundError"},
		{name: "another method of the rollback service", service: tslim.ServiceRollback, method: "Undo", body: good, want: "12 no such service"},
		{name: "no protobuf", method: send, body: bytesOf("\xff\xff"), want: "13 JSONParseError"},
		{name: "an empty message", method: send, body: bytesOf(""), want: "3 InvalidParamsError"},
		{name: "cut short", method: send, body: func(t *testing.T, b *gatewaytest.Fixture) []byte { t.Helper(); g := good(t, b); return g[:len(g)-2] }, want: "13 JSONParseError"},
		{name: "no such tool", method: send, body: packed(strings.Replace(gatewaytest.AddBody(40), `"skill":"add"`, `"skill":"fly"`, 1)), want: "5 SkillNotFoundError"},
		{name: "a later version", method: send, body: good, metadata: map[string]string{"a2a-version": "2.0"}, want: "12 VersionNotSupportedError"},
		{name: "an earlier version", method: send, body: good, metadata: map[string]string{"a2a-version": "0.3"}, want: "12 VersionNotSupportedError"},
		{name: "an ECT that is none", method: send, body: good, metadata: evidence("a.b.c"), want: "7 ForbiddenError"},
		{name: "words as an ECT", method: send, body: good, metadata: evidence("hello"), want: "7 ForbiddenError"},
		{name: "too many ECTs", method: send, body: good, metadata: evidence(strings.Repeat("a.b.c,", 40) + "a.b.c"), want: "7 ForbiddenError"},
		{name: "an ECT too long", method: send, body: good, metadata: evidence("a." + strings.Repeat("b", 9<<10) + ".c"), want: "7 ForbiddenError"},
		{name: "a task that is not there", method: "GetTask", body: packed(`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t"}}`), want: "5 TaskNotFoundError"},
		{name: "an agent for others", agent: "closed", method: send, body: good, want: "7 ForbiddenError"},
		{name: "an agent that wants an ECT", agent: "strict", method: send, body: good, want: "7 ForbiddenError"},
		{name: "a rollback that is no token", service: tslim.ServiceRollback, method: "Request", body: bytesOf("go back"), want: "7 ForbiddenError"},
		{name: "a rollback that is no ECT", service: tslim.ServiceRollback, method: "Request", body: bytesOf("a.b.c"), want: "7 ForbiddenError"},
		{name: "a rollback with bytes that are no text", service: tslim.ServiceRollback, method: "Request", body: bytesOf("\xff.b.c"), want: "7 ForbiddenError"},

		{name: "JSON-RPC: no method", body: bytesOf(`{"jsonrpc":"2.0","id":1,"method":"nothing/here"}`), want: "-32601"},
		{name: "JSON-RPC: no tool", body: call(`{}`), want: "-32600"},
		{name: "JSON-RPC: no such tool", body: call(`{"name":"fly","arguments":{}}`), want: "-32602"},
		{name: "JSON-RPC: arguments that are a list", body: call(`{"name":"add","arguments":[1]}`), want: "-32600"},
		{name: "JSON-RPC: a stream", body: bytesOf(strings.Replace(gatewaytest.AddBody(40), "SendMessage", "SendStreamingMessage", 1)), want: "-32004"},
		{name: "JSON-RPC: an agent for others", agent: "closed", body: add, want: "-32600"},
		{name: "JSON-RPC: an ECT that is none", body: add, metadata: evidence("a.b.c"), want: "-32600"},
		{name: "JSON-RPC: a rollback without a token", body: bytesOf(`{"jsonrpc":"2.0","id":1,"method":"aepb/rollback","params":{}}`), want: "-32600"},
		{name: "JSON-RPC: a rollback that is no token", body: bytesOf(`{"jsonrpc":"2.0","id":1,"method":"aepb/rollback","params":{"token":"go back"}}`), want: "-32602"},
		{name: "JSON-RPC: a decision", body: bytesOf(`{"jsonrpc":"2.0","id":1,"method":"aepb/decision","params":{"token":"a.b.c"}}`), want: "-32601"},
		{name: "JSON-RPC: a callback without TLS", body: add, metadata: map[string]string{"aepb-hitl-callback": "http://x.example"}, want: "-32600"},
	}
}

// TestSLIMEndpoint_Refuses: each refusal by its status, and good calls work afterwards.
func TestSLIMEndpoint_Refuses(t *testing.T) {
	t.Parallel()
	b := sharedSLIM()
	net := b.Slim
	caller := net.Join(t, "org/callers/alice", nil)
	for _, agent := range []string{"calculator", "closed", "strict"} {
		net.Exposed(t, caller, agent)
	}
	for _, c := range slimRefusals() {
		if c.agent == "" {
			c.agent = "calculator"
		}
		if c.service == "" {
			c.service = tslim.ServiceA2A
		}
		f, err := gatewaytest.AskSLIMService(t, caller, c.agent, c.service, c.method, c.body(t, b), c.metadata)
		if got := gatewaytest.RefusedAs(f, err); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	f, err := gatewaytest.AskSLIM(t, caller, "calculator", "SendMessage", gatewaytest.InProtobuf(t, gatewaytest.AddBody(40)), nil)
	if err != nil || !strings.Contains(gatewaytest.OutOfProtobuf(t, f.Body), "41") {
		t.Errorf("a good call: %v", err)
	}
}

// TestSLIMAgent_Failures: what an agent on SLIM, or its node, does wrong comes to
// the caller as one problem each, and the connection lives.
func TestSLIMAgent_Failures(t *testing.T) {
	t.Parallel()
	b := sharedSLIM()
	net := b.Slim
	fake := &gatewaytest.SlimFake{}
	adder := "adder-" + strconv.FormatInt(b.Number(), 10) // the gateway remembers members that have left
	b.SlimAgent(t, net, adder, "", fake)
	b.ListAs(t, "nobody", b.SVID(t, "/nobody").ID, slimAt("slim://"+net.At+"/org/agents/nobody"))
	b.ListAs(t, "elsewhere", b.SVID(t, "/elsewhere").ID, slimAt("slim://127.0.0.1:9/org/agents/adder"))
	answers := func(body string, err error) func(rpc.Call) (rpc.Frame, error) {
		return func(rpc.Call) (rpc.Frame, error) { return rpc.Frame{Body: []byte(body)}, err }
	}
	status := func(code rpc.Code, text string) func(rpc.Call) (rpc.Frame, error) {
		return answers("", &rpc.StatusError{Code: code, Message: text})
	}
	for _, c := range []struct {
		name, dest string
		answer     func(rpc.Call) (rpc.Frame, error)
		body       string
		status     int
		want       string
	}{
		{name: "no protobuf", answer: answers("\xff\xff", nil), want: "502 bad_upstream_reply"},
		{name: "an empty response", answer: answers("", nil), want: "502 bad_upstream_reply"},
		{name: "not found", answer: status(rpc.NotFound, "TaskNotFoundError: gone"), want: "200 -32001 TASK_NOT_FOUND"},
		{name: "invalid", answer: status(rpc.InvalidArgument, "InvalidParamsError: no"), want: "200 -32602 INVALID_PARAMS"},
		{name: "unimplemented", answer: status(rpc.Unimplemented, "no"), want: "200 -32601 METHOD_NOT_FOUND"},
		{name: "internal", answer: status(rpc.Internal, "InternalError: boom"), want: "200 -32603 INTERNAL"},
		{name: "unavailable", answer: status(rpc.Unavailable, "later"), want: "502 upstream_unreachable"},
		{name: "exhausted", answer: status(rpc.ResourceExhausted, "RateLimitedError: slow down"), want: "200 -32603 RATE_LIMITED"},
		{name: "too late", answer: status(rpc.DeadlineExceeded, "late"), want: "200 -32603 TIMEOUT"},
		{name: "unauthenticated", answer: status(16, "who"), want: "200 -31401 UNAUTHENTICATED"},
		{name: "forbidden", answer: status(7, "no"), want: "200 -31403 FORBIDDEN"},
		{name: "no known status", answer: status(99, "odd"), want: "200 -32603 OTHER"},
		{name: "an error that is none of SLIMRPC's", answer: answers("", errors.New("oops")), want: "200 -32603 INTERNAL"},
		{name: "evidence that is none", answer: func(rpc.Call) (rpc.Frame, error) {
			return rpc.Frame{Metadata: map[string]string{"execution-context": "hello"}}, nil
		}, want: "502 bad_upstream_reply"},
		{name: "a text that is no UTF-8", answer: status(rpc.Internal, "\xff\xfe"), want: "200 -32603 INTERNAL"},
		{name: "too large to be sent", body: gatewaytest.TextBody(strings.Repeat("x", 5<<20)), want: "413 too_large"},
		{name: "nobody of that name", dest: "nobody", want: "504 timeout"},
		{name: "a node that is not ours", dest: "elsewhere", want: "403 policy_violation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake.Answer = c.answer
			if c.dest == "" {
				c.dest = adder
			}
			if c.body == "" {
				c.body = gatewaytest.AddBody(40)
			}
			got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + c.dest, Body: c.body}))
			if output := fate(got); output != c.want {
				t.Errorf("%q, want %q", output, c.want)
			}
		})
	}
	fake.Answer = nil
	b.Right(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + adder, Body: gatewaytest.AddBody(40)})), "41")
}

// fate is a problem's code, or the error in an answer.
func fate(got gatewaytest.Reply) string {
	var answer struct {
		Code  string `json:"code"`
		Error *struct {
			Code int `json:"code"`
			Data []struct {
				Reason string `json:"reason"`
			} `json:"data"`
		} `json:"error"`
	}
	if json.Unmarshal(got.Body, &answer) != nil {
		return string(gatewaytest.Short(got.Body))
	}
	switch {
	case answer.Error != nil && len(answer.Error.Data) > 0:
		return fmt.Sprintf("%d %d %s", got.Status, answer.Error.Code, answer.Error.Data[0].Reason)
	case answer.Error != nil:
		return fmt.Sprintf("%d %d", got.Status, answer.Error.Code)
	}
	return fmt.Sprintf("%d %s", got.Status, answer.Code)
}

func slimAt(url string) directory.Endpoint {
	return directory.Endpoint{Binding: slim.Binding, URL: url}
}
