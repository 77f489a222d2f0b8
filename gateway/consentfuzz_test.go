package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Each target is one way in which callers of a protocol answer. Streams of messages
// with random answers go through the codec and the gateway's own judgement: an agent
// hears "accept" only where the message says it to that question, with values that fit.

// fuzzMessages fuzzes messages that answer what is on record. good accepts the
// question for a name.
func fuzzMessages(f *testing.F, good fuzzedAnswer, codecs []codec, says func([]canonical.Input, []byte) claims) {
	f.Helper()
	for i := range codecs {
		received := newFixture(f, &codecs[i], inputsOfSet(0)).hearAll([]fuzzedMessage{{answers: []fuzzedAnswer{good}}}, says)
		if len(received) != 1 || received[0].Action != canonical.Accept || string(received[0].Value) != `{"name":"Ada"}` {
			f.Fatalf("%s: the agent hears %+v of an answer that accepts", codecs[i].name, received)
		}
	}
	try := func(b *fixture, stream []fuzzedMessage) { b.hearAll(stream, says) }
	trySeeds(f, codecs, good, try)
	f.Fuzz(func(t *testing.T, of, set uint8, stream string) {
		try(newFixture(t, &codecs[int(of)%len(codecs)], inputsOfSet(set)), readStream(stream))
	})
}

// fuzzReplies fuzzes messages that answer a question in the middle of a stream.
func fuzzReplies(f *testing.F, good fuzzedAnswer, codecs []codec, says func(string, []byte) (claim, bool)) {
	f.Helper()
	for i := range codecs {
		received := newFixture(f, &codecs[i], inputsOfSet(0)).hearReplies([]fuzzedAnswer{good}, says)
		if len(received) != 1 || received[0].Action != canonical.Accept || string(received[0].Value) != `{"name":"Ada"}` {
			f.Fatalf("%s: the agent hears %+v of an answer that accepts", codecs[i].name, received)
		}
	}
	try := func(b *fixture, stream []fuzzedMessage) {
		var answers []fuzzedAnswer
		for _, m := range stream {
			answers = append(answers, m.answers...)
		}
		b.hearReplies(answers, says)
	}
	trySeeds(f, codecs, good, try)
	f.Fuzz(func(t *testing.T, of, set uint8, stream string) {
		try(newFixture(t, &codecs[int(of)%len(codecs)], inputsOfSet(set)), readStream(stream))
	})
}

// rpcReplies are the answers to requests of MCP by their ids. A text is an error.
func rpcReplies(form translators.Translator, versions ...string) []codec {
	var list []codec
	for _, version := range versions {
		list = append(list, codec{name: version, form: form, wire: func(_ testing.TB, m fuzzedMessage, id string) translators.Wire {
			a := m.answers[0]
			body := `{"jsonrpc":"2.0","id":` + string(inJSON(id)) + `,"result":` + a.result() + `}`
			if a.text != "" {
				body = `{"jsonrpc":"2.0","id":` + string(inJSON(id)) + `,"error":{"code":-1,"message":` + string(inJSON(a.text)) + `,"data":` + fuzzedAnswer{action: a.action, content: a.content}.result() + `}}`
			}
			return wireOf(form, version, body)
		}})
	}
	return list
}

// ada accepts the question for a name in most ways.
func ada() fuzzedAnswer {
	return fuzzedAnswer{key: keyWho, action: "accept", content: `{"name":"Ada"}`}
}

func FuzzConsent_MCPReply(f *testing.F) {
	fuzzReplies(f, ada(), rpcReplies(formMCP, mcp.Legacy, mcp.LegacyJune), claimOfRPCReply)
}

func FuzzConsent_SLIMReply(f *testing.F) {
	fuzzReplies(f, ada(), rpcReplies(formSLIM, slim.VersionMCP(mcp.Legacy), slim.VersionMCP(mcp.LegacyJune)), claimOfRPCReply)
}

// retries are requests of MCP 2026-07-28 that are made again.
func retries(form translators.Translator, version string) codec {
	again := modernRequest("tools/call", `"name":"ask","arguments":{"a":1}`)
	return codec{
		name: version + " tools/call", form: form, state: true,
		begun: func() translators.Wire { return wireOf(form, version, again(fuzzedMessage{}, "")) },
		wire: func(_ testing.TB, m fuzzedMessage, state string) translators.Wire {
			return wireOf(form, version, again(m, state))
		},
	}
}

// updates are answers to a task of the tasks extension.
func updates(form translators.Translator, version string) codec {
	c := retries(form, version)
	update := modernRequest("tasks/update", `"taskId":"`+theTask+`"`)
	c.name, c.state = version+" tasks/update", false
	c.wire = func(_ testing.TB, m fuzzedMessage, _ string) translators.Wire {
		return wireOf(form, version, update(m, ""))
	}
	return c
}

func FuzzConsent_MCPRetry(f *testing.F) {
	fuzzMessages(f, ada(), []codec{retries(formMCP, mcp.Modern)}, claimsOfResponses)
}

func FuzzConsent_MCPTask(f *testing.F) {
	fuzzMessages(f, ada(), []codec{updates(formMCP, mcp.Modern)}, claimsOfResponses)
}

func FuzzConsent_SLIMRetry(f *testing.F) {
	version := slim.VersionMCP(mcp.Modern)
	fuzzMessages(f, ada(), []codec{retries(formSLIM, version), updates(formSLIM, version)}, claimsOfResponses)
}

// a2aMessages are messages to a task of A2A: in 1.0 and 0.3, each as JSON-RPC.
func a2aMessages(kind partKind) []codec {
	return []codec{
		messages(formA2A, a2a.Version, kind, "SendMessage", newMessage),
		messages(formA2A, a2a.Version03, kind, "message/send", oldMessage),
		{
			name: "1.0 over HTTP", form: formA2A, begun: messages(formA2A, a2a.Version, kind, "SendMessage", newMessage).begun,
			wire: func(_ testing.TB, m fuzzedMessage, _ string) translators.Wire {
				return httpWire(formA2A, a2a.Version, "/message:send", newMessage(m, kind))
			},
			doc: func(w translators.Wire) []byte { return []byte(`{"params":` + string(w.Body) + `}`) },
		},
	}
}

// messages are those of A2A as JSON-RPC, in one version.
func messages(form translators.Translator, version string, kind partKind, method string, params func(fuzzedMessage, partKind) string) codec {
	wire := func(m fuzzedMessage) translators.Wire {
		return wireOf(form, version, rpcHead+method+`","params":`+params(m, kind)+`}`)
	}
	return codec{
		name: version, form: form,
		begun: func() translators.Wire { return wire(fuzzedMessage{answers: []fuzzedAnswer{{text: "hi"}}}) },
		wire:  func(_ testing.TB, m fuzzedMessage, _ string) translators.Wire { return wire(m) },
	}
}

func claimsOfMessage(request []canonical.Input, body []byte) claims {
	return claimsOfParts(request, listOf(at(body, "params", "message", "parts")))
}

// values accepts the question for a name with bare data.
func values() fuzzedAnswer { return fuzzedAnswer{content: `{"name":"Ada"}`} }

func FuzzConsent_A2AElicitation(f *testing.F) {
	fuzzMessages(f, ada(), a2aMessages(partElicitation), claimsOfMessage)
}

func FuzzConsent_A2AData(f *testing.F) {
	fuzzMessages(f, values(), a2aMessages(partData), claimsOfMessage)
}

func FuzzConsent_A2AText(f *testing.F) {
	fuzzMessages(f, fuzzedAnswer{text: "Ada"}, a2aMessages(partText), claimsOfMessage)
}

// besides are messages of A2A whose words have answers beside them, as gateways say
// them to agents that know words only.
func besides(version, method string, params func(fuzzedMessage, partKind) string) codec {
	c := messages(formA2A, version, partText, method, params)
	c.name += " beside words"
	c.wire = func(_ testing.TB, m fuzzedMessage, _ string) translators.Wire {
		words := strings.TrimSuffix(params(fuzzedMessage{answers: []fuzzedAnswer{{text: m.text()}}}, partText), "}")
		answers := m.list(func(a fuzzedAnswer) string {
			return members(a.more, "key", optional(a.key), "action", optional(a.action), "content", optional(a.content))
		})
		return wireOf(formA2A, version, rpcHead+method+`","params":`+words+`,"metadata":{"urn:aepb:translation:1":{"canon":{"answers":`+answers+`}}}}}`)
	}
	return c
}

func FuzzConsent_A2ABeside(f *testing.F) {
	good := ada()
	good.text = "Ada"
	fuzzMessages(f, good, []codec{
		besides(a2a.Version, "SendMessage", newMessage), besides(a2a.Version03, "message/send", oldMessage),
	}, func(request []canonical.Input, body []byte) claims {
		list := listOf(at(body, "params", "metadata", "urn:aepb:translation:1", "canon", "answers"))
		if len(list) == 0 || slices.ContainsFunc(list, func(raw json.RawMessage) bool { return !isBeside(raw) }) {
			return claimsOfMessage(request, body) // the words count
		}
		answer := claims{}
		for _, raw := range list {
			key, action := request[0].Key, at(raw, "action")
			if named, ok := textIn(at(raw, "key")); ok {
				key = named
			} else if len(request) > 1 {
				continue
			}
			c, ok := claimOf(key, at(raw, "content"))
			answer.add(key, c, ok && string(action) == `"accept"`)
		}
		return answer
	})
}

func FuzzConsent_SLIMMessage(f *testing.F) {
	var codecs []codec
	for _, kind := range []partKind{partElicitation, partData, partText} {
		codecs = append(codecs, messages(formSLIM, slim.VersionA2A, kind, "SendMessage", newMessage))
	}
	good := ada()
	good.text = "Ada"
	fuzzMessages(f, good, codecs, claimsOfMessage)
}

// FuzzConsent_AINPReply: a RESULT or an ERROR that names the question. A text is that
// of an error, and the action stands as the status.
func FuzzConsent_AINPReply(f *testing.F) {
	good := ada()
	good.action = "success"
	fuzzReplies(f, good, []codec{{name: "RESULT", form: formAINP, wire: func(_ testing.TB, m fuzzedMessage, id string) translators.Wire {
		a := m.answers[0]
		if a.text != "" {
			return wireOf(formAINP, "", ainpEnvelope("ERROR", members(a.more, "intent_id", string(inJSON(id)), "error_code", `"INTERNAL_ERROR"`, "error_message", string(inJSON(a.text)), "result", optional(a.content))))
		}
		return wireOf(formAINP, "", ainpEnvelope("RESULT", members(a.more, "intent_id", string(inJSON(id)), "status", optional(a.action), "result", optional(a.content))))
	}}}, claimOfDecision)
}

// notes are intents of AINP and frames of µACP that say a text or data to a task, and
// keyed ones with answers.
const (
	noteText  = "text"
	noteData  = "data"
	noteKeyed = "answers"
	noteTask  = "query_answers"
)

func ainpNotes(kind string) codec {
	wire := func(m fuzzedMessage) translators.Wire {
		task := string(inJSON(theTask))
		payload := ""
		switch kind {
		case noteText:
			payload = members("", "@type", `"FreeformNote"`, "semantics", members("", "body", string(inJSON(m.text()))), "aepb", members("", "task_id", task))
		case noteData:
			parts := m.list(func(a fuzzedAnswer) string { return members("", "kind", `"data"`, "data", bareOf(a)) })
			payload = members("", "@type", `"FreeformNote"`, "semantics", "{}", "aepb", members("", "task_id", task, "parts", parts))
		case noteKeyed:
			payload = members("", "@type", `"FreeformNote"`, "semantics", members("", "body", string(inJSON(m.text()))), "aepb", members("", "task_id", task, "answers", m.list(fuzzedAnswer.enveloped)))
		case noteTask:
			payload = members("", "@type", `"TaskAnswer"`, "semantics", members("", "task_id", task), "aepb", members("", "query_answers", m.list(fuzzedAnswer.enveloped)))
		}
		return wireOf(formAINP, "", ainpEnvelope("INTENT", payload))
	}
	return codec{
		name: kind, form: formAINP, wire: func(_ testing.TB, m fuzzedMessage, _ string) translators.Wire { return wire(m) },
		begun: func() translators.Wire {
			return wireOf(formAINP, "", ainpEnvelope("INTENT", `{"@type":"FreeformNote","semantics":{"body":"hi"}}`))
		},
	}
}

// bareOf is a data part: an action with content, or values.
func bareOf(a fuzzedAnswer) string {
	if a.action == "" && a.more == "" && a.content != "" {
		return rawOr(a.content)
	}
	return a.data()
}

func FuzzConsent_AINPText(f *testing.F) {
	fuzzMessages(f, fuzzedAnswer{text: "Ada"}, []codec{ainpNotes(noteText)}, func(request []canonical.Input, body []byte) claims {
		content := at(body, "payload", "semantics", "body")
		return claimsOfPlain(request, partsSaid(content))
	})
}

// partsSaid is a text as the parts of a message.
func partsSaid(text []byte) []json.RawMessage {
	return []json.RawMessage{json.RawMessage(`{"text":` + string(text) + `}`)}
}

func FuzzConsent_AINPData(f *testing.F) {
	fuzzMessages(f, values(), []codec{ainpNotes(noteData)}, func(request []canonical.Input, body []byte) claims {
		return claimsOfPlain(request, listOf(at(body, "payload", "aepb", "parts")))
	})
}

func FuzzConsent_AINPAnswers(f *testing.F) {
	fuzzMessages(f, ada(), []codec{ainpNotes(noteKeyed)}, func(request []canonical.Input, body []byte) claims {
		answer := claimsOfEnvelope(request, at(body, "payload", "aepb", "answers"))
		if len(listOf(at(body, "payload", "aepb", "answers"))) == 0 {
			answer = claimsOfPlain(request, partsSaid(at(body, "payload", "semantics", "body")))
		}
		return answer
	})
}

func FuzzConsent_AINPTask(f *testing.F) {
	fuzzMessages(f, ada(), []codec{ainpNotes(noteTask)}, func(request []canonical.Input, body []byte) claims {
		return claimsOfEnvelope(request, at(body, "payload", "aepb", "query_answers"))
	})
}

// uacpNotes are messages of µACP to a task.
func uacpNotes(kind string) codec {
	wire := func(t testing.TB, m fuzzedMessage) translators.Wire {
		t.Helper()
		task := string(inJSON(theTask))
		payload := members("", "body", string(inJSON(m.text())), "aepb", members("", "task_id", task))
		switch kind {
		case noteData:
			body := ""
			if len(m.answers) > 0 {
				body = bareOf(m.answers[0])
			}
			payload = members("", "body", body, "aepb", members("", "task_id", task))
		case noteKeyed:
			payload = members("", "body", string(inJSON(m.text())), "aepb", members("", "task_id", task, "answers", m.list(fuzzedAnswer.enveloped)))
		}
		w := wireOf(formUACP, "", "")
		w.Body = frameOf(t, payload)
		return w
	}
	return codec{
		name: kind, form: formUACP,
		wire: func(t testing.TB, m fuzzedMessage, _ string) translators.Wire { t.Helper(); return wire(t, m) },
		begun: func() translators.Wire {
			frame := uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 6, Payload: []byte("hi"), Options: []uacp.Option{{Type: uacp.OptTopic, Value: []byte("/a2a/message/send")}}}
			w := wireOf(formUACP, "", "")
			w.Body, _ = frame.Bytes()
			return w
		},
		doc: func(w translators.Wire) []byte {
			frame, err := uacp.ParseFrame(w.Body)
			if err != nil {
				return nil
			}
			return frame.Payload
		},
	}
}

func FuzzConsent_UACPText(f *testing.F) {
	fuzzMessages(f, fuzzedAnswer{text: "Ada"}, []codec{uacpNotes(noteText)}, claimsOfBody)
}

func FuzzConsent_UACPData(f *testing.F) {
	fuzzMessages(f, values(), []codec{uacpNotes(noteData)}, claimsOfBody)
}

func FuzzConsent_UACPAnswers(f *testing.F) {
	good := ada()
	good.text = "Ada"
	fuzzMessages(f, good, []codec{uacpNotes(noteKeyed)}, func(request []canonical.Input, payload []byte) claims {
		if list := at(payload, "aepb", "answers"); len(listOf(list)) > 0 {
			return claimsOfEnvelope(request, list)
		}
		return claimsOfBody(request, payload)
	})
}

// claimsOfBody are those of what a µACP message says: a text, or a JSON value.
func claimsOfBody(request []canonical.Input, payload []byte) claims {
	body := at(payload, "body")
	if _, text := textIn(body); text {
		return claimsOfPlain(request, partsSaid(body))
	}
	return claimsOfPlain(request, []json.RawMessage{json.RawMessage(`{"data":` + string(body) + `}`)})
}
