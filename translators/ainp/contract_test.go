package ainp_test

import (
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/translatortest"
)

const (
	gatewayDID = "did:web:gateway.example"
	peerDID    = "did:key:z6MkoZEkdRmntcgza19hqCvbzZ7di4ttojSgs6FW59sFNqA3"
	requestID  = "770e8400-e29b-41d4-a716-446655440002"
	replyID    = "880e8400-e29b-41d4-a716-446655440003"
)

func stamp() translators.Addressing {
	return translators.Addressing{From: gatewayDID, To: peerDID, At: time.UnixMilli(1728259400000)}
}

func head(kind, id string) string {
	return `"version":"0.1.0","msg_type":"` + kind + `","id":"` + id + `","timestamp":1728259400000,"ttl":30000,"trace_id":"trace-1",` +
		`"from_did":"` + peerDID + `","to_did":"` + gatewayDID + `","schema":"https://ainp.dev/schemas/x/v1","qos":{"urgency":0.50,"bid":0},"sig":"c2ln"`
}

func message(kind, id, payload string) []byte {
	return []byte(`{` + head(kind, id) + `,"payload":` + payload + `}`)
}

// wires are messages of every kind that AINP has.
func wires() map[string]translators.Wire {
	request := func(kind, payload string) translators.Wire {
		return translators.Wire{Binding: ainp.Binding, Version: ainp.Version, Media: ainp.Media, Body: message(kind, requestID, payload)}
	}
	reply := func(re canonical.Op, kind, payload string) translators.Wire {
		w := request(kind, payload)
		w.Re, w.Body = re, message(kind, replyID, payload)
		return w
	}
	event := func(kind, payload string) translators.Wire {
		w := reply(canonical.OpInvoke, kind, payload)
		w.Event, w.Form = true, ainp.FormSocket
		return w
	}
	intent := func(kind, more string) translators.Wire {
		return request("INTENT", `{"@context":"https://ainp.dev/contexts/x/v1","@type":"`+kind+`","version":"1.0.0","budget":{"max_credits":1,"max_rounds":1,"timeout_ms":10000}`+more+`}`)
	}
	plain := intent("FreeformNote", `,"semantics":{"body":"hi"}`)
	plain.Body = []byte(`{"version":"0.1.0","msg_type":"INTENT","id":"` + requestID + `","timestamp":1,"ttl":0,"from_did":"did:web:a","payload":{"@type":"FreeformNote","semantics":{"body":"hi"}}}`)
	return map[string]translators.Wire{
		"note":          intent("FreeformNote", `,"embedding":{"b64":"AA==","dim":1536,"dtype":"f32"},"semantics":{"subject":"s","body":"hi","format":"text","attachments":[{"url":"https://x.example/f","mime_type":"a/b","size_bytes":9007199254740993,"hash":"h"}],"thread_id":"th-1","in_reply_to":"x"}`),
		"plain note":    plain,
		"empty note":    intent("FreeformNote", `,"semantics":{}`),
		"bare note":     intent("FreeformNote", ``),
		"odd note":      intent("FreeformNote", `,"semantics":{"body":"","attachments":[],"thread_id":""}`),
		"chat":          intent("CHAT_MESSAGE", `,"semantics":{"conversation_id":"c-1","participants":["did:web:a"],"content":"hi","content_type":"text/markdown","attachments":[{"filename":"f","mime_type":"a/b","size_bytes":1,"content_hash":"h","url":"https://x.example/f"}],"labels":["l"]}`),
		"service":       intent("RequestService", `,"semantics":{"service_type":"search","geo":"x","details":{"q":"x","n":12345678901234567890}}`),
		"service alone": intent("RequestService", `,"semantics":{"service_type":"search"}`),
		"approval":      intent("ApprovalRequest", `,"semantics":{"request_type":"spend","amount":1.50,"approvers":["did:web:a"],"threshold":1,"deadline":"2026-12-01"}`),
		"invoice":       intent("Invoice", `,"semantics":{"invoice_id":"i","amount":1e2}`),
		"submit":        intent("SubmitInfo", `,"semantics":{"data_type":"d","payload":{"a":null}}`),
		"custom":        intent("https://x.example/Custom", `,"semantics":{"a":1}`),
		"custom bare":   intent("Custom", ``),
		"notification":  intent("NOTIFICATION", `,"semantics":{"content":"x"}`),
		"discover":      {Body: []byte(`{` + head("DISCOVER", requestID) + `,"to_query":{"description":"d","tags":["a"],"min_trust":0.7}}`)},
		"discover with": request("DISCOVER", `{}`),
		"describe":      request("DISCOVER", `{"aepb":{"op":"describe"}}`),
		"negotiate":     request("NEGOTIATE", `{"negotiation_id":"n","round":1,"phase":"OFFER","proposal":{"price":1.0},"constraints":{"max_rounds":10}}`),
		"ack":           request("ACK", `{"of":"x"}`),
		"advertise":     request("ADVERTISE", `{"address":"x","ttl_minutes":5}`),

		"which task":     intent("TaskQuery", `,"semantics":{"task_id":"t-1"}`),
		"which tasks":    intent("TaskQuery", `,"semantics":{}`),
		"some tasks":     intent("TaskQuery", `,"semantics":{"thread_id":"c","state":"working","page_size":5,"cursor":"x","after":"2026-07-28T01:02:03Z","include_artifacts":false,"more":1}`),
		"cancel":         intent("TaskCancel", `,"semantics":{"task_id":"t-1","why":"x"}`),
		"stop":           intent("TaskCancel", `,"semantics":{"intent_id":"i","reason":"late"}`),
		"answer a task":  intent("TaskAnswer", `,"semantics":{"task_id":"t-1"}`),
		"decision":       request("RESULT", `{"intent_id":"a","status":"success","result":{"decision":"approve"},"m":1}`),
		"decision said":  request("RESULT", `{"intent_id":"a","status":"failed","result":"no"}`),
		"decision bare":  request("RESULT", `{"status":"success"}`),
		"decision empty": request("RESULT", `{"intent_id":"","status":"success","result":null}`),
		"no decision":    request("ERROR", `{"intent_id":"a","error_code":"TIMEOUT","error_message":"nobody was there","x":1}`),

		"asked":          reply(canonical.OpInvoke, "INTENT", `{"@type":"ApprovalRequest","semantics":{"request_type":"spend","description":"may I?","amount":1.50},"budget":{}}`),
		"event asked":    event("INTENT", `{"@type":"ApprovalRequest","intent_id":"`+requestID+`","semantics":{"description":"may I?"}}`),
		"event notice":   event("INTENT", `{"@type":"NOTIFICATION","version":"1","semantics":{"content":"x","labels":["l"]}}`),
		"event silence":  event("INTENT", `{"@type":"NOTIFICATION"}`),
		"event partial":  event("RESULT", `{"intent_id":"`+requestID+`","status":"partial","result":{"p":50},"metadata":{"m":1}}`),
		"event text":     event("RESULT", `{"intent_id":"`+requestID+`","status":"partial","result":"so far"}`),
		"event bare":     event("RESULT", `{"status":"partial"}`),
		"event last":     event("RESULT", `{"intent_id":"`+requestID+`","status":"success","result":"done"}`),
		"event failed":   event("RESULT", `{"intent_id":"`+requestID+`","status":"failed","aepb":{"event":"status"}}`),
		"negotiated":     reply(canonical.OpNative, "NEGOTIATE", `{"negotiation_id":"n","round":2,"phase":"ACCEPT"}`),
		"task":           reply(canonical.OpTaskGet, "RESULT", `{"intent_id":"`+requestID+`","status":"success","result":"done"}`),
		"canceled":       reply(canonical.OpTaskCancel, "RESULT", `{"intent_id":"`+requestID+`","status":"success"}`),
		"canceled task":  reply(canonical.OpTaskCancel, "RESULT", `{"intent_id":"`+requestID+`","status":"failed","result":"x"}`),
		"canceled, mute": reply(canonical.OpTaskCancel, "RESULT", `{"intent_id":"`+requestID+`","status":"failed"}`),
		"answered":       reply(canonical.OpTaskAnswer, "RESULT", `{"intent_id":"`+requestID+`","status":"success"}`),
		"tasks":          reply(canonical.OpTaskList, "RESULT", `{"intent_id":"`+requestID+`","status":"success","result":{"tasks":[{"result_task_id":"t","state":"working"}],"next":"n","page_size":5,"total":9,"more":1}}`),
		"no tasks":       reply(canonical.OpTaskList, "RESULT", `{"status":"success","result":{"tasks":[]}}`),

		"success":        reply(canonical.OpInvoke, "RESULT", `{"intent_id":"`+requestID+`","status":"success","result":{"a":[1.0,null]},"attestations":["vc"],"metadata":{"m":1}}`),
		"success text":   reply(canonical.OpInvoke, "RESULT", `{"intent_id":"`+requestID+`","status":"success","result":"done"}`),
		"success bare":   reply(canonical.OpInvoke, "RESULT", `{"status":"success"}`),
		"success null":   reply(canonical.OpInvoke, "RESULT", `{"status":"success","result":null}`),
		"failed":         reply(canonical.OpInvoke, "RESULT", `{"intent_id":"x","status":"failed","result":"why"}`),
		"partial":        reply(canonical.OpInvoke, "RESULT", `{"intent_id":"x","status":"partial","result":{"p":50}}`),
		"partial text":   reply(canonical.OpInvoke, "RESULT", `{"intent_id":"x","status":"partial","result":"so far"}`),
		"error":          reply(canonical.OpInvoke, "ERROR", `{"error_code":"RATE_LIMIT_EXCEEDED","error_message":"slow down","intent_id":"`+requestID+`","retry_after_ms":5000,"queued":false}`),
		"error offline":  reply(canonical.OpInvoke, "ERROR", `{"error_code":"AGENT_OFFLINE","error_message":"later","intent_id":"i","queued":true,"expires_at":1}`),
		"error custom":   reply(canonical.OpInvoke, "ERROR", `{"error_code":"ESCROW_REQUIRED","error_message":""}`),
		"short error":    {Re: canonical.OpInvoke, Body: []byte(`{"version":"0.1.0","msg_type":"ERROR","error_code":"TIMEOUT","error_message":"too late","intent_id":"i"}`)},
		"found":          reply(canonical.OpCapabilities, "DISCOVER_RESULT", `{"intent_id":"x","matches":[{"did":"did:web:a","score":0.9,"description":"d","tags":["t"],"estLatencyMs":5},{"did":"did:web:b","tags":[]}],"took":1}`),
		"found by code":  reply(canonical.OpCapabilities, "DISCOVER_RESULT", `{"results":[{"did":"did:web:a"}]}`),
		"found nothing":  reply(canonical.OpCapabilities, "DISCOVER_RESULT", `{"matches":[]}`),
		"advertised":     reply(canonical.OpDescribe, "ADVERTISE", `{"capabilities":[{"description":"d","embedding":"AA==","tags":["t"],"version":"1"}],"trust":{"score":0.5},"credentials":[]}`),
		"advertised too": reply(canonical.OpDescribe, "ADVERTISE", `{"address":"https://a.example","ttl_minutes":5}`),
	}
}

func malformed() [][]byte {
	var out [][]byte
	for _, text := range []string{``, `null`, `[]`, `{`, `{}`, `{"msg_type":"INTENT"}`, `{"a":1,"a":2}`, `"x"`} {
		out = append(out, []byte(text))
	}
	return append(out,
		[]byte(`{"version":"0.1.0","msg_type":"INTENT","id":"`+requestID+`","timestamp":1.5,"ttl":1,"from_did":"did:web:a"}`),
		message("INTENT", "not-a-uuid", `{}`), message("INTENT", requestID, `[]`), message("UNHEARD", requestID, `{}`))
}

func TestTranslator_Contract(t *testing.T) {
	t.Parallel()
	s := translatortest.Samples{
		Malformed: malformed(),
		Target: func(m *canonical.Message) translators.Target {
			if string(m.Correlation.WireID) == translatortest.TypedID {
				return translators.Target{Capability: translatortest.TypedTool(), Stamp: stamp()}
			}
			if m.Origin.Binding == ainp.Binding {
				return translators.Target{}
			}
			return translators.Target{Stamp: stamp()}
		},
	}
	for _, w := range wires() {
		s.Wires = append(s.Wires, w)
	}
	for _, m := range translatortest.Foreign() {
		s.Foreign = append(s.Foreign, m)
	}
	t.Run("posted", func(t *testing.T) { translatortest.Run(t, ainp.New(translators.Config{}), s) })
	open := s
	open.Wires = nil
	for _, name := range []string{"note", "service", "cancel", "decision", "event partial", "success", "error"} {
		w := wires()[name]
		w.Form = ainp.FormSocket
		open.Wires = append(open.Wires, w)
	}
	open.Target = func(m *canonical.Message) translators.Target {
		target := s.Target(m)
		target.Form = ainp.FormSocket
		return target
	}
	t.Run("over a connection that stays open", func(t *testing.T) { translatortest.Run(t, ainp.New(translators.Config{}), open) })
}

// FuzzTranslator_Roundtrip: whatever is read, over either form, goes home or is refused, and
// an event or an answer too.
func FuzzTranslator_Roundtrip(f *testing.F) {
	for _, w := range wires() {
		f.Add(w.Body, string(w.Re), w.Event, w.Form != "")
	}
	for _, body := range malformed() {
		f.Add(body, "", false, false)
	}
	tr := ainp.New(translators.Config{})
	f.Fuzz(func(t *testing.T, body []byte, re string, event, open bool) {
		w := translators.Wire{Body: body, Re: canonical.Op(re), Event: event}
		if open {
			w.Form = ainp.FormSocket
		}
		_ = ainp.Final(body)
		m, err := tr.Decode(w)
		if err != nil {
			return
		}
		home, _, err := tr.Encode(m, translators.Target{Form: w.Form, Stamp: stamp()})
		if err != nil {
			return
		}
		if home.Re == "" && re != "" {
			t.Errorf("an answer went home as a request: %s", home.Body)
		}
		home.Re = canonical.Op(re)
		if _, err := tr.Decode(home); err != nil {
			t.Errorf("what went home cannot be read: %v\n%s", err, home.Body)
		}
	})
}
