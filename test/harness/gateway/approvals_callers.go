package gatewaytest

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// ApprovalCaller is a caller whose calls need an approval, in one protocol.
type ApprovalCaller struct {
	Agent string                                                       // that it calls: calculator adds, concierge talks
	call  func(t *testing.T, b *Fixture, agent string, n int64) string // the answer to the call, as text
	// Of a caller that is told by a task: what it is answered when it asks about its task, or cancels it; nil:
	// it sends its call again.
	Ask    func(t *testing.T, b *Fixture, agent, task string) string
	Cancel func(t *testing.T, b *Fixture, agent, task string) string
	Words  approvalWords
}

// approvalWords are the words in which a protocol says how a call stands.
type approvalWords struct {
	Waits, refused, Rejected, Canceled string

	bare bool // there is no room for data in a refusal
}

// ApprovalPath finds the path of an approval.
var ApprovalPath = regexp.MustCompile(`/hitl/approvals/([0-9a-f-]{36})`)

// taskNamed finds the id of the task that an answer tells of.
func taskNamed(t *testing.T, answer string) string {
	t.Helper()
	for _, member := range []string{`"task":\s*\{[^{}]*"(?:id|taskId)":\s*"([^"]+)"`, `"(?:taskId|task_id)":\s*"([^"]+)"`, `"kind":"task"[^{}]*"id":"([^"]+)"`, `"id":\s*"([0-9a-f-]{36})"`} {
		if found := regexp.MustCompile(member).FindStringSubmatch(answer); found != nil {
			return found[1]
		}
	}
	t.Fatalf("no task in %s", answer)
	return ""
}

func a2aWords() approvalWords {
	return approvalWords{Waits: "TASK_STATE_AUTH_REQUIRED", Rejected: "TASK_STATE_REJECTED", Canceled: "TASK_STATE_CANCELED"}
}

// JSONRPC is a JSON-RPC request with the id 1. params is a JSON value.
func JSONRPC(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}

// AddArguments are the arguments, as a JSON object, of a call that adds n and 1.
func AddArguments(n int64) string { return `{"a":` + strconv.FormatInt(n, 10) + `,"b":1}` }

func spoken(n int64) string { return "word-" + strconv.FormatInt(n, 10) }

// ApprovalCallers are callers of every protocol, of agents of another one, and of agents of their own.
func ApprovalCallers() map[string]ApprovalCaller {
	callers := map[string]ApprovalCaller{
		"A2A 1.0 JSON-RPC": overJSONRPC("1.0", "SendMessage", "GetTask", "CancelTask", a2aWords()),
		"A2A 1.0 stream":   overJSONRPC("1.0", "SendStreamingMessage", "GetTask", "CancelTask", a2aWords()),
		"A2A 0.3 JSON-RPC": overJSONRPC("0.3", "message/send", "tasks/get", "tasks/cancel", approvalWords{Waits: `"auth-required"`, Rejected: `"rejected"`, Canceled: `"canceled"`}),
		"A2A 1.0 HTTP":     overREST(),
		"A2A 1.0 gRPC":     overRPC(),
		"A2A to A2A": sendsAgain("concierge", func(n int64) HTTPRequest {
			return HTTPRequest{At: "/a2a", Body: TextBody(spoken(n)), Header: map[string]string{"A2A-Version": "1.0"}}
		}, `"code":-3`),
		"MCP to MCP": sendsAgain("calculator", func(n int64) HTTPRequest {
			body := strings.Replace(ModernCall("add", AddArguments(n)), `"_meta":{`, `"_meta":{"progressToken":"`+string(ect.NewID())+`",`, 1)
			return HTTPRequest{At: "/mcp", Body: body, Header: Mirror("tools/call", "add")}
		}, `"code":-32`),
		"MCP 2026-07-28": sendsAgain("concierge", func(n int64) HTTPRequest {
			return HTTPRequest{At: "/mcp", Body: CallBody("concierge", spoken(n)), Header: Mirror("tools/call", "concierge")}
		}, `"code":-32`),
		"MCP 2025-06-18 session":  inSession(),
		"MCP 2025-11-25 task":     withTasks(),
		"µACP enveloped":          overUACP(),
		"µACP bare":               overBareUACP(),
		"SLIM A2A":                overSLIM(),
		"SLIM MCP":                overSLIMCalls(),
		"AINP HTTP":               overAINP(),
		"AINP, a fresh ECT":       overAINPWithECT(),
		"AINP socket":             overSocket(),
		"translate, a task":       translatedTask(),
		"translate, the same ECT": translated(true),
		"translate, a fresh ECT":  translated(false),
	}
	return callers
}

// overJSONRPC is a caller of A2A.
func overJSONRPC(version, send, get, cancel string, words approvalWords) ApprovalCaller {
	ask := func(method string) func(*testing.T, *Fixture, string, string) string {
		return func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			return string(b.Send(t, HTTPRequest{At: "/agents/" + agent + "/a2a", Body: JSONRPC(method, `{"id":"`+task+`"}`), Header: map[string]string{"A2A-Version": version}}).Body)
		}
	}
	return ApprovalCaller{Agent: "calculator", Ask: ask(get), Cancel: ask(cancel), Words: words, call: func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		body := strings.Replace(AddBody(n), "SendMessage", send, 1)
		if version == "0.3" {
			body = JSONRPC(send, `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"skill":"add","input":`+AddArguments(n)+`}}]}}`)
		}
		return string(b.Send(t, HTTPRequest{At: "/agents/" + agent + "/a2a", Body: body, Header: map[string]string{"A2A-Version": version}}).Body)
	}}
}

// overREST is a caller of A2A in HTTP+JSON.
func overREST() ApprovalCaller {
	say := func(t *testing.T, b *Fixture, l HTTPRequest) string {
		t.Helper()
		l.Header = map[string]string{"A2A-Version": "1.0"}
		return string(b.Send(t, l).Body)
	}
	return ApprovalCaller{
		Agent: "calculator", Words: a2aWords(),
		call: func(t *testing.T, b *Fixture, agent string, n int64) string {
			t.Helper()
			var whole struct{ Params json.RawMessage }
			Must(t, json.Unmarshal([]byte(AddBody(n)), &whole))
			return say(t, b, HTTPRequest{At: "/agents/" + agent + "/a2a/message:send", Body: string(whole.Params)})
		},
		Ask: func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			return say(t, b, HTTPRequest{Method: http.MethodGet, At: "/agents/" + agent + "/a2a/tasks/" + task, Media: "-"})
		},
		Cancel: func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			return say(t, b, HTTPRequest{At: "/agents/" + agent + "/a2a/tasks/" + task + ":cancel", Body: "{}"})
		},
	}
}

// overRPC is a caller of A2A over gRPC.
func overRPC() ApprovalCaller {
	say := func(t *testing.T, b *Fixture, op canonical.Op, method, text string) string {
		t.Helper()
		got := b.Remote(t, b.ClientTLS(t, b.Dev.Client)).Call(t.Context(), method, [][]byte{Request(t, method, text)})
		if len(got.Messages) == 0 {
			return got.Code + " " + got.Details
		}
		return fromProtobuf(t, op, got.Messages[0])
	}
	return ApprovalCaller{
		Agent: "calculator", Words: a2aWords(),
		call: func(t *testing.T, b *Fixture, agent string, n int64) string {
			t.Helper()
			return say(t, b, canonical.OpInvoke, "SendMessage", `{"tenant":"`+agent+`","message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":`+AddArguments(n)+`}}]}}`)
		},
		Ask: func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			return say(t, b, canonical.OpTaskGet, "GetTask", `{"tenant":"`+agent+`","id":"`+task+`"}`)
		},
		Cancel: func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			return say(t, b, canonical.OpTaskCancel, "CancelTask", `{"tenant":"`+agent+`","id":"`+task+`"}`)
		},
	}
}

// fromProtobuf is an answer of A2A in protobuf, as JSON-RPC.
func fromProtobuf(t *testing.T, op canonical.Op, body []byte) string {
	t.Helper()
	w, err := tslim.Unframe(translators.Wire{
		Binding: slim.Binding, Version: slim.VersionA2A, Form: slim.FormRPC, Media: tslim.MediaProto, Re: op, Body: body,
	})
	Must(t, err)
	return string(w.Body)
}

// sendsAgain is a caller over HTTP that sends its call again.
func sendsAgain(agent string, of func(n int64) HTTPRequest, refused string) ApprovalCaller {
	return ApprovalCaller{Agent: agent, Words: approvalWords{refused: refused}, call: func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		l := of(n)
		l.At = "/agents/" + agent + l.At
		return string(b.Send(t, l).Body)
	}}
}

// session begins a session of MCP, and gives the header of its messages.
func (b *Fixture) session(t *testing.T, agent, revision, capabilities string) map[string]string {
	t.Helper()
	header := MCPHeader(revision)
	begun := b.Send(t, HTTPRequest{At: "/agents/" + agent + "/mcp", Header: header, Body: JSONRPC("initialize", `{"protocolVersion":"`+revision+`","capabilities":`+capabilities+`,"clientInfo":{"name":"c","version":"1"}}`)})
	if header["Mcp-Session-Id"] = begun.Header.Get("Mcp-Session-Id"); header["Mcp-Session-Id"] == "" {
		t.Fatalf("no session: %d %s", begun.Status, begun.Body)
	}
	return header
}

// inSession is a caller of MCP 2025-06-18 with a session, whose answers are streams.
func inSession() ApprovalCaller {
	return ApprovalCaller{Agent: "concierge", Words: approvalWords{refused: `"code":-32`}, call: func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		return string(b.Send(t, HTTPRequest{At: "/agents/" + agent + "/mcp", Header: b.session(t, agent, "2025-06-18", "{}"), Body: LegacyCall("concierge", `{"message":"`+spoken(n)+`"}`)}).Body)
	}}
}

// withTasks is a caller of MCP 2025-11-25 that asks for tasks.
func withTasks() ApprovalCaller {
	say := func(t *testing.T, b *Fixture, agent, body string) string {
		t.Helper()
		return string(b.Send(t, HTTPRequest{At: "/agents/" + agent + "/mcp", Header: MCPHeader("2025-11-25"), Body: body}).Body)
	}
	return ApprovalCaller{
		Agent: "concierge", Words: approvalWords{Waits: `"working"`, Rejected: `"failed"`, Canceled: `"cancelled"`},
		call: func(t *testing.T, b *Fixture, agent string, n int64) string {
			t.Helper()
			return say(t, b, agent, strings.Replace(LegacyCall("concierge", `{"message":"`+spoken(n)+`"}`), `"arguments"`, `"task":{},"arguments"`, 1))
		},
		Ask: func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			status := say(t, b, agent, JSONRPC("tasks/get", `{"taskId":"`+task+`"}`))
			if strings.Contains(status, `"working"`) {
				return status
			}
			return status + say(t, b, agent, JSONRPC("tasks/result", `{"taskId":"`+task+`"}`))
		},
		Cancel: func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			return say(t, b, agent, JSONRPC("tasks/cancel", `{"taskId":"`+task+`"}`))
		},
	}
}

// overUACP is a caller of µACP in envelopes, on a connection for each message.
func overUACP() ApprovalCaller {
	ask := func(op canonical.Op) func(*testing.T, *Fixture, string, string) string {
		return func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			return string(b.AskUACP(t, agent, UACPRequest(t, op, "", &canonical.TaskQuery{ID: task})))
		}
	}
	return ApprovalCaller{
		Agent: "concierge", Words: approvalWords{Waits: `"auth-required"`, Rejected: `"rejected"`, Canceled: `"canceled"`}, Ask: ask(canonical.OpTaskGet), Cancel: ask(canonical.OpTaskCancel),
		call: func(t *testing.T, b *Fixture, agent string, n int64) string {
			t.Helper()
			return string(b.AskUACP(t, agent, FrameOf(t, uacp.FormEnveloped, TextInvoke(spoken(n)))))
		},
	}
}

// overBareUACP is a caller of µACP without envelopes, whose refusals are text alone.
func overBareUACP() ApprovalCaller {
	return ApprovalCaller{Agent: "concierge", Words: approvalWords{bare: true}, call: func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		return string(b.AskUACP(t, agent, FrameOf(t, uacp.FormBare, TextInvoke(spoken(n)))))
	}}
}

// overSLIM is a caller of A2A on SLIM.
func overSLIM() ApprovalCaller {
	say := func(t *testing.T, b *Fixture, agent string, op canonical.Op, body string) string {
		t.Helper()
		var call struct{ Method string }
		Must(t, json.Unmarshal([]byte(body), &call))
		caller := b.Slim.Join(t, "org/callers/alice", nil)
		b.Slim.Exposed(t, caller, agent)
		f, err := AskSLIM(t, caller, agent, call.Method, InProtobuf(t, body), nil)
		if err != nil {
			return err.Error()
		}
		return fromProtobuf(t, op, f.Body)
	}
	ask := func(op canonical.Op, method string) func(*testing.T, *Fixture, string, string) string {
		return func(t *testing.T, b *Fixture, agent, task string) string {
			t.Helper()
			return say(t, b, agent, op, JSONRPC(method, `{"id":"`+task+`"}`))
		}
	}
	return ApprovalCaller{
		Agent: "calculator", Words: a2aWords(), Ask: ask(canonical.OpTaskGet, "GetTask"), Cancel: ask(canonical.OpTaskCancel, "CancelTask"),
		call: func(t *testing.T, b *Fixture, agent string, n int64) string {
			t.Helper()
			return say(t, b, agent, canonical.OpInvoke, AddBody(n))
		},
	}
}

// overSLIMCalls is a caller of MCP 2025-06-18 on SLIM.
func overSLIMCalls() ApprovalCaller {
	return ApprovalCaller{Agent: "concierge", Words: approvalWords{refused: `"code":-32`}, call: func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		caller := b.Slim.Join(t, "org/callers/bob", nil)
		b.Slim.Exposed(t, caller, agent)
		f, err := AskSLIM(t, caller, agent, "", []byte(LegacyCall("concierge", `{"message":"`+spoken(n)+`"}`)), nil)
		Must(t, err)
		return string(f.Body)
	}}
}

// overAINP is a caller of AINP over HTTP: each envelope has its own id and signature.
func overAINP() ApprovalCaller {
	alice := Did("alice")
	return ApprovalCaller{Agent: "concierge", Words: approvalWords{refused: `"error_code":"`}, call: func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		return string(b.Send(t, HTTPRequest{At: "/agents/" + agent + "/ainp", Body: string(Signed(alice, EnvelopeOf(t, alice, TextInvoke(spoken(n))), ""))}).Body)
	}}
}

// overAINPWithECT is the same with a token inside, in one workflow.
func overAINPWithECT() ApprovalCaller {
	alice, c := Did("alice"), overAINP()
	c.call = func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		body := EnvelopeOf(t, alice, TextInvoke(spoken(n)))
		input, err := ainp.HashInput(body)
		Must(t, err)
		body, err = AINPWithEvidence(body, []string{tokenIn(t, b, string(input), n)})
		Must(t, err)
		return string(b.Send(t, HTTPRequest{At: "/agents/" + agent + "/ainp", Body: string(Signed(alice, body, ""))}).Body)
	}
	return c
}

// overSocket is the same over a WebSocket, on a connection for each message.
func overSocket() ApprovalCaller {
	return ApprovalCaller{Agent: "concierge", Words: approvalWords{refused: `"error_code":"`}, call: func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		conn := b.Connect(t, agent)
		defer func() { _ = conn.CloseNow() }()
		Tell(t, conn, Did("alice"), TextInvoke(spoken(n)))
		return Hear(t, conn).Raw
	}}
}

// translated is a caller of the translate endpoint with an ECT, who sends the same octets with the same token again,
// or signs them anew.
func translated(same bool) ApprovalCaller {
	var tokens sync.Map
	return ApprovalCaller{Agent: "concierge", Words: approvalWords{refused: `"code":"approval_`}, call: func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		body := CallBody("concierge", spoken(n))
		token := tokenIn(t, b, body, n)
		if same {
			first, _ := tokens.LoadOrStore(n, token)
			token, _ = first.(string)
		}
		return string(b.Send(t, HTTPRequest{At: "/aepb/translate?from=mcp-v1&dest=" + agent, Body: body, Header: Mirror("tools/call", "concierge"), Tokens: []string{token}}).Body)
	}}
}

// tokenIn is the client's token for a body, in a workflow of that number.
func tokenIn(t *testing.T, b *Fixture, body string, n int64) string {
	t.Helper()
	recipe := b.Recipe(body)
	recipe.Claims.Workflow = "0b39f2a1-6a0c-4a3e-9f0e-" + strconv.FormatInt(100_000_000_000+n, 10)
	return ecttest.Mint(t, b.Me, recipe)
}

// translatedTask is a caller of the translate endpoint with an ECT that is told by a task.
func translatedTask() ApprovalCaller {
	c := overJSONRPC("1.0", "SendMessage", "GetTask", "CancelTask", a2aWords())
	c.call = func(t *testing.T, b *Fixture, agent string, n int64) string {
		t.Helper()
		body := AddBody(n)
		return string(b.Send(t, HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + agent, Body: body, Tokens: []string{tokenIn(t, b, body, n)}}).Body)
	}
	return c
}
