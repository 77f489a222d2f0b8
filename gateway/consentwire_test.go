package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// The messages in which callers of each protocol answer. Fuzzed fields stand where the
// answer does, and the rest of the message is well-formed.

// fuzzedAnswer is one answer, field by field. An empty field is left out.
type fuzzedAnswer struct {
	key     string
	action  string // JSON, or the text itself
	content string // JSON, or the text itself
	more    string // further members, as `"a":1`
	text    string // words beside the answer, or in place of it
}

// fuzzedMessage is one message of a stream.
type fuzzedMessage struct {
	state   string // the request state that it brings back; empty: that of the question
	answers []fuzzedAnswer
}

// Separators of a stream of messages in one text.
const (
	betweenMessages = "\n"
	betweenAnswers  = "\x1e"
	betweenFields   = "\x1f"
)

// streamOf writes messages as one text, which a fuzzer can change.
func streamOf(messages ...fuzzedMessage) string {
	lines := make([]string, len(messages))
	for i, m := range messages {
		records := []string{m.state}
		for _, a := range m.answers {
			records = append(records, strings.Join([]string{a.key, a.action, a.content, a.more, a.text}, betweenFields))
		}
		lines[i] = strings.Join(records, betweenAnswers)
	}
	return strings.Join(lines, betweenMessages)
}

// Bounds of one stream.
const (
	mostMessages = 6
	mostAnswers  = 4
)

// readStream reads what streamOf writes, and anything else as something like it.
func readStream(text string) []fuzzedMessage {
	var messages []fuzzedMessage
	for i, line := range strings.Split(text, betweenMessages) {
		if i == mostMessages {
			break
		}
		records := strings.Split(line, betweenAnswers)
		m := fuzzedMessage{state: records[0]}
		for _, record := range records[1:min(len(records), mostAnswers+1)] {
			fields := append(strings.Split(record, betweenFields), "", "", "", "")
			m.answers = append(m.answers, fuzzedAnswer{fields[0], fields[1], fields[2], fields[3], fields[4]})
		}
		messages = append(messages, m)
	}
	return messages
}

// rawOr is a field as JSON: what it says if that is JSON, else its text.
func rawOr(field string) string {
	if json.Valid([]byte(field)) {
		return field
	}
	return string(inJSON(field))
}

// members joins members of an object; values are JSON, and empty ones are left out.
func members(more string, pairs ...string) string {
	var list []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, string(inJSON(pairs[i]))+":"+pairs[i+1])
		}
	}
	if more != "" && json.Valid([]byte("{"+more+"}")) {
		list = append(list, more)
	}
	return "{" + strings.Join(list, ",") + "}"
}

func optional(field string) string {
	if field == "" {
		return ""
	}
	return rawOr(field)
}

func quotedOr(field string) string {
	if field == "" {
		return ""
	}
	return string(inJSON(field))
}

// result is an answer as an elicitation result of MCP.
func (a fuzzedAnswer) result() string {
	if a.text != "" {
		return rawOr(a.text)
	}
	return members(a.more, "action", optional(a.action), "content", optional(a.content))
}

// enveloped is an answer in an aepb object.
func (a fuzzedAnswer) enveloped() string {
	return members(a.more, "key", quotedOr(a.key), "action", optional(a.action), "value", optional(a.content))
}

// data is a data part without a key.
func (a fuzzedAnswer) data() string {
	return members(a.more, "action", optional(a.action), "content", optional(a.content))
}

func (m fuzzedMessage) list(one func(fuzzedAnswer) string) string {
	var list []string
	for _, a := range m.answers {
		list = append(list, one(a))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// text is the words of a message.
func (m fuzzedMessage) text() string {
	var texts []string
	for _, a := range m.answers {
		texts = append(texts, a.text)
	}
	return strings.Join(texts, "\n")
}

const rpcHead = `{"jsonrpc":"2.0","id":7,"method":"`

// theTask is the name of the work that asks.
const theTask = "t1"

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// modernRequest is a request of MCP 2026-07-28 with answers; an empty state is left out.
func modernRequest(method, params string) func(fuzzedMessage, string) string {
	return func(m fuzzedMessage, state string) string {
		var list []string
		for _, a := range m.answers {
			list = append(list, string(inJSON(a.key))+":"+a.result())
		}
		responses := `,"inputResponses":{` + strings.Join(list, ",") + `}`
		if len(list) == 0 {
			responses = ""
		}
		if state != "" {
			responses += `,"requestState":` + string(inJSON(state))
		}
		return rpcHead + method + `","params":{` + params + responses + "," + modernMeta + `}}`
	}
}

// The kinds of parts in which a message of A2A answers.
type partKind string

const (
	partElicitation partKind = "elicitation"
	partData        partKind = "data"
	partText        partKind = "text"
)

// partsOf are the parts of a message of A2A, in 1.0 or with the kinds of 0.3.
func partsOf(m fuzzedMessage, kind partKind, kinds bool) string {
	part := func(name, value string) string {
		if kinds {
			return `{"kind":"` + name + `","` + name + `":` + value + `}`
		}
		return `{"` + name + `":` + value + `}`
	}
	var parts []string
	for _, a := range m.answers {
		switch kind {
		case partElicitation:
			inner := members(a.more, "key", optional(a.key), "action", optional(a.action), "content", optional(a.content))
			parts = append(parts, part("data", `{"elicitation":`+inner+`}`))
		case partData:
			data := a.data()
			if a.action == "" && a.more == "" && a.content != "" {
				data = rawOr(a.content) // values, or a part that is no object
			}
			if a.action+a.more+a.content != "" || a.text == "" {
				parts = append(parts, part("data", data))
			}
		case partText: // it follows
		}
		if a.text != "" {
			parts = append(parts, part("text", string(inJSON(a.text))))
		}
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// newMessage and oldMessage are messages of A2A 1.0 and 0.3.
func newMessage(m fuzzedMessage, kind partKind) string {
	return `{"message":{"messageId":"m2","taskId":"` + theTask + `","role":"ROLE_USER","parts":` + partsOf(m, kind, false) + `}}`
}

func oldMessage(m fuzzedMessage, kind partKind) string {
	return `{"message":{"kind":"message","messageId":"m2","taskId":"` + theTask + `","role":"user","parts":` + partsOf(m, kind, true) + `}}`
}

// ainpEnvelope is a message of AINP around a payload.
func ainpEnvelope(kind, payload string) string {
	return `{"msg_type":"` + kind + `","id":"0b5e4e0c-5f4e-4d3a-9b1e-0123456789aa","trace_id":"0b5e4e0c-5f4e-4d3a-9b1e-0123456789aa","version":"0.1.0",` +
		`"timestamp":1000000000000,"ttl":60000,"from_did":"did:key:a","to_did":"did:key:b","schema":"urn:x","qos":{},"payload":` + payload + `}`
}

// frameOf is a µACP message with an enveloped payload.
func frameOf(t testing.TB, payload string) []byte {
	t.Helper()
	frame := uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 7, Payload: []byte(payload), Options: []uacp.Option{
		{Type: uacp.OptTopic, Value: []byte("/a2a/message/send")}, {Type: uacp.OptContentType, Value: []byte{0, 0, 0, 1}},
	}}
	body, err := frame.Bytes()
	if err != nil {
		t.Skipf("no µACP message holds this payload, so there is no answer to judge: %v", err)
	}
	return body
}

// wireOf is a JSON message of a protocol.
func wireOf(form translators.Translator, version, body string) translators.Wire {
	return translators.Wire{Binding: form.Info().Binding, Version: version, Media: "application/json", Body: []byte(body)}
}

// httpWire is one of A2A without JSON-RPC.
func httpWire(form translators.Translator, version, path, body string) translators.Wire {
	w := wireOf(form, version, body)
	w.Form, w.Verb, w.Path = a2a.FormHTTP, http.MethodPost, path
	return w
}

// The codecs.
var (
	formA2A  = a2a.New(translators.Config{})
	formMCP  = mcp.New(translators.Config{})
	formAINP = ainp.New(translators.Config{})
	formUACP = uacp.New(translators.Config{})
	formSLIM = slim.New(translators.Config{})
)
