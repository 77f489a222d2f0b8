package main

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

// approvalCaller is a caller whose calls need an approval, in one protocol.
type approvalCaller struct {
	agent string                                                   // that it calls: calculator adds, concierge talks
	call  func(t *testing.T, b *bed, agent string, n int64) string // the answer to the call, as text
	// Of a caller that is told by a task: what it is answered when it asks about its task, or cancels it; nil:
	// it sends its call again.
	ask    func(t *testing.T, b *bed, agent, task string) string
	cancel func(t *testing.T, b *bed, agent, task string) string
	words  approvalWords
}

// approvalWords are the words in which a protocol says how a call stands.
type approvalWords struct {
	waits, refused, rejected, canceled string

	bare bool // there is no room for data in a refusal
}

// approvalPath finds the path of an approval.
var approvalPath = regexp.MustCompile(`/hitl/approvals/([0-9a-f-]{36})`)

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
	return approvalWords{waits: "TASK_STATE_AUTH_REQUIRED", rejected: "TASK_STATE_REJECTED", canceled: "TASK_STATE_CANCELED"}
}

func jsonRPC(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}

func addArguments(n int64) string { return `{"a":` + strconv.FormatInt(n, 10) + `,"b":1}` }

func spoken(n int64) string { return "word-" + strconv.FormatInt(n, 10) }

// approvalCallers are callers of every protocol, of agents of another one, and of agents of their own.
func approvalCallers() map[string]approvalCaller {
	callers := map[string]approvalCaller{
		"A2A 1.0 JSON-RPC": overJSONRPC("calculator", "1.0", "SendMessage", "GetTask", "CancelTask", a2aWords()),
		"A2A 1.0 stream":   overJSONRPC("calculator", "1.0", "SendStreamingMessage", "GetTask", "CancelTask", a2aWords()),
		"A2A 0.3 JSON-RPC": overJSONRPC("calculator", "0.3", "message/send", "tasks/get", "tasks/cancel", approvalWords{waits: `"auth-required"`, rejected: `"rejected"`, canceled: `"canceled"`}),
		"A2A 1.0 HTTP":     overREST(),
		"A2A 1.0 gRPC":     overRPC(),
		"A2A to A2A": sendsAgain("concierge", func(n int64) letter {
			return letter{at: "/a2a", body: textBody(spoken(n)), header: map[string]string{"A2A-Version": "1.0"}}
		}, `"code":-3`),
		"MCP to MCP": sendsAgain("calculator", func(n int64) letter {
			body := strings.Replace(modernCall("add", addArguments(n)), `"_meta":{`, `"_meta":{"progressToken":"`+string(ect.NewID())+`",`, 1)
			return letter{at: "/mcp", body: body, header: mirror("tools/call", "add")}
		}, `"code":-32`),
		"MCP 2026-07-28": sendsAgain("concierge", func(n int64) letter {
			return letter{at: "/mcp", body: callBody("concierge", spoken(n)), header: mirror("tools/call", "concierge")}
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
func overJSONRPC(agent, version, send, get, cancel string, words approvalWords) approvalCaller {
	ask := func(method string) func(*testing.T, *bed, string, string) string {
		return func(t *testing.T, b *bed, agent, task string) string {
			t.Helper()
			return string(b.send(t, letter{at: "/agents/" + agent + "/a2a", body: jsonRPC(method, `{"id":"`+task+`"}`), header: map[string]string{"A2A-Version": version}}).body)
		}
	}
	return approvalCaller{agent: agent, ask: ask(get), cancel: ask(cancel), words: words, call: func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		body := strings.Replace(addBody(n), "SendMessage", send, 1)
		if version == "0.3" {
			body = jsonRPC(send, `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"skill":"add","input":`+addArguments(n)+`}}]}}`)
		}
		return string(b.send(t, letter{at: "/agents/" + agent + "/a2a", body: body, header: map[string]string{"A2A-Version": version}}).body)
	}}
}

// overREST is a caller of A2A in HTTP+JSON.
func overREST() approvalCaller {
	say := func(t *testing.T, b *bed, l letter) string {
		t.Helper()
		l.header = map[string]string{"A2A-Version": "1.0"}
		return string(b.send(t, l).body)
	}
	return approvalCaller{
		agent: "calculator", words: a2aWords(),
		call: func(t *testing.T, b *bed, agent string, n int64) string {
			t.Helper()
			var whole struct{ Params json.RawMessage }
			must(t, json.Unmarshal([]byte(addBody(n)), &whole))
			return say(t, b, letter{at: "/agents/" + agent + "/a2a/message:send", body: string(whole.Params)})
		},
		ask: func(t *testing.T, b *bed, agent, task string) string {
			t.Helper()
			return say(t, b, letter{method: http.MethodGet, at: "/agents/" + agent + "/a2a/tasks/" + task, media: "-"})
		},
		cancel: func(t *testing.T, b *bed, agent, task string) string {
			t.Helper()
			return say(t, b, letter{at: "/agents/" + agent + "/a2a/tasks/" + task + ":cancel", body: "{}"})
		},
	}
}

// overRPC is a caller of A2A over gRPC.
func overRPC() approvalCaller {
	say := func(t *testing.T, b *bed, op canonical.Op, method, text string) string {
		t.Helper()
		got := b.remote(t, b.clientTLS(t, b.dev.Client)).Call(t.Context(), method, [][]byte{request(t, method, text)})
		if len(got.Messages) == 0 {
			return got.Code + " " + got.Details
		}
		return fromProtobuf(t, op, got.Messages[0])
	}
	return approvalCaller{
		agent: "calculator", words: a2aWords(),
		call: func(t *testing.T, b *bed, agent string, n int64) string {
			t.Helper()
			return say(t, b, canonical.OpInvoke, "SendMessage", `{"tenant":"`+agent+`","message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":`+addArguments(n)+`}}]}}`)
		},
		ask: func(t *testing.T, b *bed, agent, task string) string {
			t.Helper()
			return say(t, b, canonical.OpTaskGet, "GetTask", `{"tenant":"`+agent+`","id":"`+task+`"}`)
		},
		cancel: func(t *testing.T, b *bed, agent, task string) string {
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
	must(t, err)
	return string(w.Body)
}

// sendsAgain is a caller over HTTP that sends its call again.
func sendsAgain(agent string, of func(n int64) letter, refused string) approvalCaller {
	return approvalCaller{agent: agent, words: approvalWords{refused: refused}, call: func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		l := of(n)
		l.at = "/agents/" + agent + l.at
		return string(b.send(t, l).body)
	}}
}

// session begins a session of MCP, and gives the header of its messages.
func (b *bed) session(t *testing.T, agent, revision, capabilities string) map[string]string {
	t.Helper()
	header := mcpHeader(revision)
	begun := b.send(t, letter{at: "/agents/" + agent + "/mcp", header: header, body: jsonRPC("initialize", `{"protocolVersion":"`+revision+`","capabilities":`+capabilities+`,"clientInfo":{"name":"c","version":"1"}}`)})
	if header["Mcp-Session-Id"] = begun.header.Get("Mcp-Session-Id"); header["Mcp-Session-Id"] == "" {
		t.Fatalf("no session: %d %s", begun.status, begun.body)
	}
	return header
}

// inSession is a caller of MCP 2025-06-18 with a session, whose answers are streams.
func inSession() approvalCaller {
	return approvalCaller{agent: "concierge", words: approvalWords{refused: `"code":-32`}, call: func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		return string(b.send(t, letter{at: "/agents/" + agent + "/mcp", header: b.session(t, agent, "2025-06-18", "{}"), body: legacyCall("concierge", `{"message":"`+spoken(n)+`"}`)}).body)
	}}
}

// withTasks is a caller of MCP 2025-11-25 that asks for tasks.
func withTasks() approvalCaller {
	say := func(t *testing.T, b *bed, agent, body string) string {
		t.Helper()
		return string(b.send(t, letter{at: "/agents/" + agent + "/mcp", header: mcpHeader("2025-11-25"), body: body}).body)
	}
	return approvalCaller{
		agent: "concierge", words: approvalWords{waits: `"working"`, rejected: `"failed"`, canceled: `"cancelled"`},
		call: func(t *testing.T, b *bed, agent string, n int64) string {
			t.Helper()
			return say(t, b, agent, strings.Replace(legacyCall("concierge", `{"message":"`+spoken(n)+`"}`), `"arguments"`, `"task":{},"arguments"`, 1))
		},
		ask: func(t *testing.T, b *bed, agent, task string) string {
			t.Helper()
			status := say(t, b, agent, jsonRPC("tasks/get", `{"taskId":"`+task+`"}`))
			if strings.Contains(status, `"working"`) {
				return status
			}
			return status + say(t, b, agent, jsonRPC("tasks/result", `{"taskId":"`+task+`"}`))
		},
		cancel: func(t *testing.T, b *bed, agent, task string) string {
			t.Helper()
			return say(t, b, agent, jsonRPC("tasks/cancel", `{"taskId":"`+task+`"}`))
		},
	}
}

// overUACP is a caller of µACP in envelopes, on a connection for each message.
func overUACP() approvalCaller {
	ask := func(op canonical.Op) func(*testing.T, *bed, string, string) string {
		return func(t *testing.T, b *bed, agent, task string) string {
			t.Helper()
			return string(b.askUACP(t, agent, wish(t, op, "", &canonical.TaskQuery{ID: task})))
		}
	}
	return approvalCaller{
		agent: "concierge", words: approvalWords{waits: `"auth-required"`, rejected: `"rejected"`, canceled: `"canceled"`}, ask: ask(canonical.OpTaskGet), cancel: ask(canonical.OpTaskCancel),
		call: func(t *testing.T, b *bed, agent string, n int64) string {
			t.Helper()
			return string(b.askUACP(t, agent, frameOf(t, uacp.FormEnveloped, telling(spoken(n)))))
		},
	}
}

// overBareUACP is a caller of µACP without envelopes, whose refusals are text alone.
func overBareUACP() approvalCaller {
	return approvalCaller{agent: "concierge", words: approvalWords{bare: true}, call: func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		return string(b.askUACP(t, agent, frameOf(t, uacp.FormBare, telling(spoken(n)))))
	}}
}

// overSLIM is a caller of A2A on SLIM.
func overSLIM() approvalCaller {
	say := func(t *testing.T, b *bed, agent string, op canonical.Op, body string) string {
		t.Helper()
		var call struct{ Method string }
		must(t, json.Unmarshal([]byte(body), &call))
		caller := b.slim.join(t, "org/callers/alice", nil)
		b.slim.exposed(t, caller, agent)
		f, err := askSLIM(t, caller, agent, call.Method, inProtobuf(t, body), nil)
		if err != nil {
			return err.Error()
		}
		return fromProtobuf(t, op, f.Body)
	}
	ask := func(op canonical.Op, method string) func(*testing.T, *bed, string, string) string {
		return func(t *testing.T, b *bed, agent, task string) string {
			t.Helper()
			return say(t, b, agent, op, jsonRPC(method, `{"id":"`+task+`"}`))
		}
	}
	return approvalCaller{
		agent: "calculator", words: a2aWords(), ask: ask(canonical.OpTaskGet, "GetTask"), cancel: ask(canonical.OpTaskCancel, "CancelTask"),
		call: func(t *testing.T, b *bed, agent string, n int64) string {
			t.Helper()
			return say(t, b, agent, canonical.OpInvoke, addBody(n))
		},
	}
}

// overSLIMCalls is a caller of MCP 2025-06-18 on SLIM.
func overSLIMCalls() approvalCaller {
	return approvalCaller{agent: "concierge", words: approvalWords{refused: `"code":-32`}, call: func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		caller := b.slim.join(t, "org/callers/bob", nil)
		b.slim.exposed(t, caller, agent)
		f, err := askSLIM(t, caller, agent, "", []byte(legacyCall("concierge", `{"message":"`+spoken(n)+`"}`)), nil)
		must(t, err)
		return string(f.Body)
	}}
}

// overAINP is a caller of AINP over HTTP: each envelope has its own id and signature.
func overAINP() approvalCaller {
	alice := did("alice")
	return approvalCaller{agent: "concierge", words: approvalWords{refused: `"error_code":"`}, call: func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		return string(b.send(t, letter{at: "/agents/" + agent + "/ainp", body: string(signed(alice, envelopeOf(t, alice, telling(spoken(n))), ""))}).body)
	}}
}

// overAINPWithECT is the same with a token inside, in one workflow.
func overAINPWithECT() approvalCaller {
	alice, c := did("alice"), overAINP()
	c.call = func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		body := envelopeOf(t, alice, telling(spoken(n)))
		input, err := ainp.HashInput(body)
		must(t, err)
		body, err = ainpWithEvidence(body, []string{tokenIn(t, b, string(input), n)})
		must(t, err)
		return string(b.send(t, letter{at: "/agents/" + agent + "/ainp", body: string(signed(alice, body, ""))}).body)
	}
	return c
}

// overSocket is the same over a WebSocket, on a connection for each message.
func overSocket() approvalCaller {
	return approvalCaller{agent: "concierge", words: approvalWords{refused: `"error_code":"`}, call: func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		conn := b.connect(t, agent)
		defer func() { _ = conn.CloseNow() }()
		tell(t, conn, did("alice"), telling(spoken(n)))
		return hear(t, conn).raw
	}}
}

// translated is a caller of the translate endpoint with an ECT, who sends the same octets with the same token again,
// or signs them anew.
func translated(same bool) approvalCaller {
	var tokens sync.Map
	return approvalCaller{agent: "concierge", words: approvalWords{refused: `"code":"approval_`}, call: func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		body := callBody("concierge", spoken(n))
		token := tokenIn(t, b, body, n)
		if same {
			first, _ := tokens.LoadOrStore(n, token)
			token, _ = first.(string)
		}
		return string(b.send(t, letter{at: "/aepb/translate?from=mcp-v1&dest=" + agent, body: body, header: mirror("tools/call", "concierge"), tokens: []string{token}}).body)
	}}
}

// tokenIn is the client's token for a body, in a workflow of that number.
func tokenIn(t *testing.T, b *bed, body string, n int64) string {
	t.Helper()
	recipe := b.recipe(body)
	recipe.Claims.Workflow = "0b39f2a1-6a0c-4a3e-9f0e-" + strconv.FormatInt(100_000_000_000+n, 10)
	return ecttest.Mint(t, b.me, recipe)
}

// translatedTask is a caller of the translate endpoint with an ECT that is told by a task.
func translatedTask() approvalCaller {
	c := overJSONRPC("calculator", "1.0", "SendMessage", "GetTask", "CancelTask", a2aWords())
	c.call = func(t *testing.T, b *bed, agent string, n int64) string {
		t.Helper()
		body := addBody(n)
		return string(b.send(t, letter{at: "/aepb/translate?from=a2a-v1&dest=" + agent, body: body, tokens: []string{tokenIn(t, b, body, n)}}).body)
	}
	return c
}
