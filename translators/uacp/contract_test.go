package uacp_test

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/translatortest"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

func option(kind uint8, value string) uacp.Option {
	return uacp.Option{Type: kind, Value: []byte(value)}
}

const (
	typeJSON = "\x00\x00\x00\x01"
	typeText = "\x00\x00\x00\x03"
)

// bytes writes a frame that must be one.
func content(f uacp.Frame) []byte {
	data, err := f.Bytes()
	if err != nil {
		return nil
	}
	return data
}

// wires are frames of every kind that is understood.
func wires() map[string]translators.Wire {
	out := map[string]translators.Wire{}
	add := func(name string, re canonical.Op, f uacp.Frame) {
		out[name] = translators.Wire{Binding: uacp.Binding, Version: uacp.Profile, Media: uacp.Media, Re: re, Body: content(f)}
	}
	ask := func(name, topic, kind, payload string, more ...uacp.Option) {
		options := append([]uacp.Option{option(uacp.OptTopic, topic)}, more...)
		if kind != "" {
			options = append(options, option(uacp.OptContentType, kind))
		}
		add(name, "", uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 42, Options: options, Payload: []byte(payload)})
	}
	reply := func(name string, re canonical.Op, code uint8, kind, payload string, more ...uacp.Option) {
		options := more
		if kind != "" {
			options = append(options, option(uacp.OptContentType, kind))
		}
		add(name, re, uacp.Frame{Verb: uacp.Ask, QoS: 1, Code: code, ID: 42, Options: options, Payload: []byte(payload)})
	}
	correlated := option(uacp.OptCorrelation, "\x00\x00\x00\x2a")

	add("ping", "", uacp.Frame{ID: 1})
	add("ping that says something", "", uacp.Frame{ID: 1, QoS: 1, Payload: []byte("hello")})
	add("pong", canonical.OpPing, uacp.Frame{ID: 1, Payload: []byte("pong")})
	add("tell", "", uacp.Frame{Verb: uacp.Tell, ID: 0x010203, Options: []uacp.Option{option(uacp.OptTopic, "a/b")}, Payload: []byte("hi")})
	ask("sensor", "sensors/temp", typeJSON, "{}")
	ask("text", uacp.TopicSend, typeText, "hi", option(uacp.OptConversation, "conv-0001"))
	ask("no type", uacp.TopicSend, "", "hi")
	ask("short type", uacp.TopicSend, "\x01", `{"a":9007199254740993}`)
	ask("nothing", uacp.TopicSend, "", "")
	ask("bytes", uacp.TopicSend, "", "\x00\xff")
	ask("cbor", uacp.TopicSend, "\x00\x00\x00\x00", "\xa0")
	ask("protobuf", uacp.TopicSend, "\x00\x00\x00\x02", "\x08\x01")
	ask("unknown and repeated options", "sensors/temp", typeJSON, "[1.50]", option(0x3f, "x"), option(uacp.OptTopic, "again"), option(0x09, "\x07"), option(uacp.OptConversation, "\xff\xfe0123456789abcd"))
	ask("call", uacp.TopicCall, typeJSON, `{"jsonrpc":"2.0","id":"r-1","method":"tools/call","params":{"name":"search","arguments":{"q":"x"},"_meta":{"a":1}}}`)
	ask("call with nothing", uacp.TopicCall, typeJSON, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}`)
	ask("list", uacp.TopicList, typeJSON, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"c"}}`)
	ask("list without a word", uacp.TopicList, "", "")
	ask("list with empty parameters", uacp.TopicList, typeJSON, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
	ask("describe", uacp.TopicDescribe, "", "")
	ask("enveloped", uacp.TopicSend, typeJSON, `{"body":"hi","aepb":{"context_id":"c","sender":"spiffe://x/y"}}`)
	ask("enveloped parts", uacp.TopicSend, typeJSON, `{"aepb":{"parts":[{"kind":"text","text":"a"},{"kind":"file","bytes":"AP8=","media":"image/png"}],"com.example":{"k":1}}}`)
	ask("enveloped and nothing beside", uacp.TopicSend, typeJSON, `{"body":{"a":1},"aepb":{}}`)

	ask("enveloped with a callback", uacp.TopicSend, typeJSON, `{"body":"hi","aepb":{"context_id":"c","hitl_callback":"https://a.example/hook"}}`)
	ask("rollback", uacp.TopicRollback, typeText, "aaa.bbb.ccc", option(uacp.OptConversation, "conv-0001"))
	ask("rollback, enveloped", uacp.TopicRollback, typeJSON, `{"body":"aaa.bbb.ccc","aepb":{"sender":"spiffe://x/y"}}`)
	ask("decision", uacp.TopicDecision+"a-1", typeText, "aaa.bbb.ccc")
	add("decision that is told", "", uacp.Frame{Verb: uacp.Tell, ID: 9, Options: []uacp.Option{
		option(uacp.OptTopic, uacp.TopicDecision+"a-1"), option(uacp.OptContentType, typeText),
	}, Payload: []byte("aaa.bbb.ccc")})
	reply("rolled back", canonical.OpRollback, 0, typeText, "ddd.eee.fff", correlated)
	reply("decision heard", canonical.OpDecision, 0, "", "", correlated)
	reply("decision heard, with a word", canonical.OpDecision, 3, typeText, "thanks", correlated)

	observe := func(name, topic, kind, payload string) {
		add(name, "", uacp.Frame{Verb: uacp.Observe, QoS: 1, ID: 42, Payload: []byte(payload), Options: []uacp.Option{
			option(uacp.OptTopic, topic), option(uacp.OptContentType, kind),
		}})
	}
	event := func(name string, verb uacp.Verb, code uint8, kind, payload string) {
		options := []uacp.Option{correlated, option(uacp.OptTopic, "alerts/#")}
		if kind != "" {
			options = append(options, option(uacp.OptContentType, kind))
		}
		add(name, canonical.OpInvoke, uacp.Frame{Verb: verb, QoS: 1, Code: code, ID: 43, Options: options, Payload: []byte(payload)})
		w := out[name]
		w.Event = true
		out[name] = w
	}
	observe("observe", "alerts/#", typeText, "all of them")
	observe("observe a call", uacp.TopicCall, typeJSON, `{"jsonrpc":"2.0","id":"r-1","method":"tools/call","params":{"name":"search"}}`)
	observe("observe, enveloped", uacp.TopicSend, typeJSON, `{"body":"hi","aepb":{"context_id":"c"}}`)
	ask("ask that wants a stream", uacp.TopicSend, typeJSON, `{"body":"hi","aepb":{"context_id":"c","streaming":true}}`)
	event("tell that is an event", uacp.Tell, 0, typeText, "it rains")
	event("empty tell", uacp.Tell, 0, "", "")
	event("value that is told", uacp.Tell, 0, typeJSON, `{"t":[1.0]}`)
	event("bytes that are told", uacp.Tell, 0, "", "\xff\x00")
	event("end", uacp.Observe, 3, "", "")
	event("end with a word", uacp.Observe, 0, typeText, "that was all")
	event("end with an error", uacp.Observe, 0x80, typeText, "no more")
	event("status", uacp.Tell, 0, typeJSON, `{"body":"reading","aepb":{"event":"status","kind":"task","state":"working","state_message":{"role":"agent","parts":[{"kind":"text","text":"reading"}]},"artifacts":null}}`)
	event("task that is told of", uacp.Tell, 0, typeText, "on its way")
	notified := out["task that is told of"]
	notified.Re = canonical.OpTaskSubscribe
	out["task that is told of"] = notified
	ask("task", uacp.TopicTaskGet, typeJSON, `{"id":"t-1"}`)
	ask("task, and more about it", uacp.TopicTaskGet, typeJSON, `{"id":"t-1","historyLength":2}`)
	ask("task, enveloped", uacp.TopicTaskGet, typeJSON, `{"body":{"id":"t-1"},"aepb":{"sender":"spiffe://x/y"}}`)
	ask("cancel a task", uacp.TopicTaskCancel, typeJSON, `{"id":"t-1"}`)
	observe("observe a task", uacp.TopicTask+"t-1", typeText, "please")
	observe("observe a task called get", uacp.TopicTaskGet, typeText, "")
	observe("observe a task, enveloped", uacp.TopicTask+"t/1 ü", typeJSON, `{"aepb":{"context_id":"c"}}`)
	reply("task that is done", canonical.OpTaskGet, 0, typeText, "done", correlated)
	reply("task at work", canonical.OpTaskGet, 2, typeJSON, `[1.50]`, correlated)
	reply("task that failed", canonical.OpTaskGet, 0x80, typeJSON, `{"body":"no","aepb":{"kind":"task","result_task_id":"t-1"}}`, correlated)
	reply("no such task", canonical.OpTaskGet, 0x43, typeText, "no such task", correlated)
	reply("task that was canceled", canonical.OpTaskCancel, 0, "", "", correlated)
	reply("cancellation that was heard", canonical.OpTaskCancel, 3, "", "", correlated)
	reply("cancellation with a word", canonical.OpTaskCancel, 3, typeText, "done", correlated)
	ask("tasks", uacp.TopicTaskList, "", "")
	ask("tasks of any kind", uacp.TopicTaskList, typeJSON, "{}")
	ask("some tasks", uacp.TopicTaskList, typeJSON, `{"context_id":"c","state":"working","cursor":"n","page_size":5,"after":"2026-07-28T01:02:03.5Z","include_artifacts":false}`)
	ask("some tasks, and more about them", uacp.TopicTaskList, typeJSON, `{"context_id":"","order":["oldest"]}`)
	ask("tasks, enveloped", uacp.TopicTaskList, typeJSON, `{"body":{"page_size":1},"aepb":{"sender":"spiffe://x/y","history_length":0}}`)
	observe("observe a task called list", uacp.TopicTaskList, typeText, "")
	reply("tasks", canonical.OpTaskList, 0, typeJSON, `{"tasks":[{"result_task_id":"t-1","state":"working"},{"result_task_id":"t-2"}],"next":"n","page_size":5,"total":9,"more":1}`, correlated)
	reply("no tasks", canonical.OpTaskList, 0, typeJSON, `{"tasks":[],"total":0}`, correlated)
	reply("tasks, enveloped", canonical.OpTaskList, 0, typeJSON, `{"body":{"tasks":[{"result_task_id":"t-1"}]},"aepb":{"sender":"spiffe://x/y"}}`, correlated)
	reply("tasks that are not told", canonical.OpTaskList, 0x44, typeText, "no such topic", correlated)
	reply("description of who can be observed", canonical.OpDescribe, 0, typeJSON, `{"name":"n","streams":true}`, correlated)

	reply("text reply", canonical.OpInvoke, 0, typeText, "done", correlated)
	reply("json reply", canonical.OpInvoke, 0, typeJSON, `{"a":[1.0,null]}`, correlated)
	reply("reply of the C++ reference", canonical.OpInvoke, 0, "", "ok")
	reply("created", canonical.OpInvoke, 1, "", "")
	reply("accepted", canonical.OpInvoke, 2, typeText, "soon", correlated)
	reply("tool result", canonical.OpInvoke, 0, typeJSON, `{"jsonrpc":"2.0","id":"r-1","result":{"content":[{"type":"text","text":"x"},{"type":"image","data":"AA==","mimeType":"image/png"}],"structuredContent":{"a":1},"isError":true,"_meta":{"m":1}}}`, correlated)
	reply("empty tool result", canonical.OpInvoke, 0, typeJSON, `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`, correlated)
	reply("enveloped failure", canonical.OpInvoke, 0x80, typeJSON, `{"body":"no","aepb":{"kind":"task","result_task_id":"t-1"}}`, correlated)
	reply("no handler", canonical.OpInvoke, 0x43, "", "No handler for topic")
	reply("silent error", canonical.OpInvoke, 0x84, "", "", correlated)
	reply("error with data", canonical.OpInvoke, 0x4A, typeJSON, `{"limit":1}`, correlated)
	reply("error of the bridge", canonical.OpInvoke, 0x80, typeJSON, `{"jsonrpc":"2.0","id":"r-1","error":{"code":-32000,"message":"m","data":{"d":1}}}`, correlated)
	reply("error in bytes", canonical.OpInvoke, 0x80, "", "\xff\x00")
	reply("tools", canonical.OpCapabilities, 0, typeJSON, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"search","title":"T","description":"d","inputSchema":{"type":"object"},"icons":[]}],"nextCursor":"n"}}`, correlated)
	reply("description", canonical.OpDescribe, 0, typeJSON, `{"name":"n","version":"1","description":"d","more":[1]}`, correlated)
	add("shifted reply of the Python reference", canonical.OpInvoke, uacp.Frame{
		Verb: uacp.Ask, QoS: 1, ID: 42 + 1_000_000, Payload: []byte("{}"),
		Options: []uacp.Option{option(uacp.OptTopic, "sensors/temp"), option(uacp.OptContentType, typeJSON), correlated},
	})
	add("correlation of three bytes", canonical.OpInvoke, uacp.Frame{Verb: uacp.Ask, ID: 7, Options: []uacp.Option{option(uacp.OptCorrelation, "\x00\x00\x2a")}})
	add("a tell that answers", canonical.OpInvoke, uacp.Frame{Verb: uacp.Tell, ID: 42, Payload: []byte("x"), Options: []uacp.Option{correlated}})
	return out
}

func malformed() [][]byte {
	return [][]byte{
		nil, []byte("x"), []byte("{}"), make([]byte, 8),
		{0x01, 0, 0, 0, 0x2a, 0, 0, 1}, // the other uACP
		{0x64, 0, 0, 0, 0xa8, 8, 0, 0}, // two options, and none there
		{0x64, 0, 0, 0, 0xa8, 0, 0, 1}, // unused bits
		content(uacp.Frame{Verb: uacp.Ask, Options: []uacp.Option{option(uacp.OptTopic, uacp.TopicSend), option(uacp.OptContentType, typeJSON)}, Payload: []byte(`{"a":1,"a":2}`)}),
	}
}

func samples() translatortest.Samples {
	s := translatortest.Samples{Malformed: malformed()}
	for _, w := range wires() {
		s.Wires = append(s.Wires, w)
	}
	for _, m := range translatortest.Foreign() {
		s.Foreign = append(s.Foreign, m)
	}
	for _, m := range happened() {
		s.Foreign = append(s.Foreign, m)
	}
	return s
}

func TestTranslator_Contract(t *testing.T) {
	t.Parallel()
	s := samples()
	s.Target = func(m *canonical.Message) translators.Target {
		if string(m.Correlation.WireID) == translatortest.TypedID {
			return translators.Target{Capability: translatortest.TypedTool()}
		}
		return translators.Target{}
	}
	translatortest.Run(t, uacp.New(translators.Config{}), s)
}

// TestTranslator_ContractInBareForm: a peer that knows no gateways is told what fits, and all
// that does not is declared dropped.
func TestTranslator_ContractInBareForm(t *testing.T) {
	t.Parallel()
	s := samples()
	s.Target = func(m *canonical.Message) translators.Target {
		to := translators.Target{Form: uacp.FormBare}
		if string(m.Correlation.WireID) == translatortest.TypedID {
			to.Capability = translatortest.TypedTool()
		}
		return to
	}
	translatortest.Run(t, uacp.New(translators.Config{}), s)
}

// TestTranslator_BetweenForms: a message from an enveloped peer to a bare one, and
// back, says what it said; its options do not say that it is in the other form.
func TestTranslator_BetweenForms(t *testing.T) {
	t.Parallel()
	c := uacp.New(translators.Config{})
	for from, to := range map[string]string{uacp.FormEnveloped: uacp.FormBare, uacp.FormBare: uacp.FormEnveloped} {
		for _, part := range []canonical.Part{
			{Kind: canonical.KindText, Text: "good day"},
			{Kind: canonical.KindData, Data: json.RawMessage(`{"k":1}`)},
		} {
			m := &canonical.Message{
				Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage("7")},
				Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{part}}},
			}
			for _, form := range []string{from, to, from} {
				wire, _, err := c.Encode(m, translators.Target{Form: form})
				if err != nil {
					t.Fatalf("%s to %s: %v", from, to, err)
				}
				if m, err = c.Decode(translators.Wire{Binding: uacp.Binding, Form: form, Body: wire.Body}); err != nil {
					t.Fatalf("%s to %s: %v", from, to, err)
				}
			}
			answer, ok := m.Body.(*canonical.Invoke)
			if !ok || len(answer.Turn.Parts) != 1 || answer.Turn.Parts[0].Text != part.Text || string(answer.Turn.Parts[0].Data) != string(part.Data) {
				t.Errorf("%s to %s and back: %+v", from, to, m.Body)
			}
		}
	}
}
