package ainp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
	"github.com/aepb/aepb-gateway/translators/translatortest"
)

// outcome names what Decode did: malformed, too large, a code, or ok.
func outcome(err error) string {
	var answer *canonical.Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, translators.ErrTooLarge):
		return "too large"
	case errors.Is(err, translators.ErrMalformed):
		return "malformed"
	case errors.As(err, &answer):
		return string(answer.Code)
	default:
		return err.Error()
	}
}

// TestDecode_Refuses: what is refused, and as what.
func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	edit := func(before, after string) string {
		return strings.Replace(string(message("INTENT", requestID, `{"@type":"FreeformNote","semantics":{"body":"hi"}}`)), before, after, 1)
	}
	request := func(kind, payload string) string { return string(message(kind, requestID, payload)) }
	intent := func(kind, semantics string) string {
		return request("INTENT", `{"@type":"`+kind+`","semantics":`+semantics+`}`)
	}
	invoke := canonical.OpInvoke
	for name, tc := range map[string]struct {
		body string
		re   canonical.Op
		want string
	}{
		"the base itself":         {body: edit("", ""), want: "ok"},
		"empty":                   {body: "", want: "malformed"},
		"no object":               {body: "[]", want: "malformed"},
		"a member twice":          {body: edit(`"ttl"`, `"ttl":1,"ttl"`), want: "malformed"},
		"data after it":           {body: edit("", "") + "x", want: "malformed"},
		"bad UTF-8":               {body: edit("hi", "\xff"), want: "malformed"},
		"lone surrogate":          {body: edit("hi", `\ud800`), want: "malformed"},
		"too deep":                {body: edit(`"hi"`, strings.Repeat("[", 130)+strings.Repeat("]", 130)), want: "malformed"},
		"payload beyond 1 MiB":    {body: edit("hi", strings.Repeat("x", ainp.PayloadLimit)), want: "too large"},
		"no type":                 {body: edit(`"msg_type":"INTENT",`, ``), want: "malformed"},
		"type a number":           {body: edit(`"msg_type":"INTENT"`, `"msg_type":1`), want: "malformed"},
		"type unheard of":         {body: request("GOSSIP", `{}`), want: "no_method"},
		"type in lower case":      {body: request("intent", `{}`), want: "no_method"},
		"no version":              {body: edit(`"version":"0.1.0",`, ``), want: "malformed"},
		"version 0.2.0":           {body: edit(`"0.1.0"`, `"0.2.0"`), want: "unsupported_version"},
		"version a number":        {body: edit(`"0.1.0"`, `0.1`), want: "unsupported_version"},
		"no id":                   {body: edit(`"id":"`+requestID+`",`, ``), want: "malformed"},
		"id no UUID":              {body: edit(requestID, "request-1"), want: "invalid_request"},
		"id of version 1":         {body: edit(requestID, "770e8400-e29b-11d4-a716-446655440002"), want: "invalid_request"},
		"id of another variant":   {body: edit(requestID, "770e8400-e29b-41d4-c716-446655440002"), want: "invalid_request"},
		"id without dashes":       {body: edit(requestID, "770e8400e29b41d4a716446655440002----"), want: "invalid_request"},
		"id with a stray digit":   {body: edit(requestID, "770e8400-e29b-41d4-a716-44665544000g"), want: "invalid_request"},
		"no timestamp":            {body: edit(`"timestamp":1728259400000,`, ``), want: "malformed"},
		"timestamp a string":      {body: edit(`1728259400000`, `"2026"`), want: "malformed"},
		"timestamp a fraction":    {body: edit(`1728259400000`, `1.5`), want: "malformed"},
		"timestamp negative":      {body: edit(`1728259400000`, `-1`), want: "malformed"},
		"timestamp beyond all":    {body: edit(`1728259400000`, `1728259400000000`), want: "malformed"},
		"timestamp null":          {body: edit(`1728259400000`, `null`), want: "malformed"},
		"no ttl":                  {body: edit(`"ttl":30000,`, ``), want: "malformed"},
		"ttl a string":            {body: edit(`30000`, `"30000"`), want: "malformed"},
		"ttl negative":            {body: edit(`30000`, `-1`), want: "malformed"},
		"trace a number":          {body: edit(`"trace-1"`, `1`), want: "malformed"},
		"no sender":               {body: edit(`"from_did":"`+peerDID+`",`, ``), want: "malformed"},
		"sender no DID":           {body: edit(peerDID, "https://a.example"), want: "malformed"},
		"payload a list":          {body: request("INTENT", `[]`), want: "malformed"},
		"payload null":            {body: request("INTENT", `null`), want: "malformed"},
		"aepb a string":           {body: request("INTENT", `{"aepb":"x"}`), want: "malformed"},
		"intent without type":     {body: request("INTENT", `{"semantics":{}}`), want: "bad_params"},
		"intent type a number":    {body: request("INTENT", `{"@type":1}`), want: "bad_params"},
		"intent without payload":  {body: edit(`,"payload":{"@type":"FreeformNote","semantics":{"body":"hi"}}`, ``), want: "bad_params"},
		"semantics a list":        {body: intent("FreeformNote", `[]`), want: "bad_params"},
		"body a number":           {body: intent("FreeformNote", `{"body":1}`), want: "bad_params"},
		"attachments an object":   {body: intent("FreeformNote", `{"body":"x","attachments":{}}`), want: "bad_params"},
		"attachment without url":  {body: intent("FreeformNote", `{"body":"x","attachments":[{"mime_type":"a/b"}]}`), want: "bad_params"},
		"attachment a string":     {body: intent("FreeformNote", `{"body":"x","attachments":["https://x.example"]}`), want: "bad_params"},
		"thread a number":         {body: intent("FreeformNote", `{"body":"x","thread_id":12345}`), want: "bad_params"},
		"chat content a list":     {body: intent("MESSAGE", `{"content":[]}`), want: "bad_params"},
		"service without type":    {body: intent("RequestService", `{"details":{}}`), want: "bad_params"},
		"service with empty type": {body: intent("RequestService", `{"service_type":""}`), want: "bad_params"},
		"details a list":          {body: intent("RequestService", `{"service_type":"x","details":[]}`), want: "bad_params"},
		"service without words":   {body: request("INTENT", `{"@type":"RequestService"}`), want: "bad_params"},
		"approval with a list":    {body: intent("ApprovalRequest", `[]`), want: "bad_params"},
		"task query":              {body: intent("TaskQuery", `{"task_id":""}`), want: "bad_params"},
		"task cancel":             {body: intent("TaskCancel", `{}`), want: "bad_params"},
		"rollback":                {body: intent("AtdRollbackRequest", `{"ect":"x"}`), want: "bad_params"},
		"answer unasked":          {body: request("RESULT", `{"status":"perhaps"}`), want: "malformed"},
		"error unasked":           {body: request("ERROR", `{}`), want: "malformed"},
		"found unasked":           {body: request("DISCOVER_RESULT", `{"matches":[]}`), want: "invalid_request"},
		"negotiation without id":  {body: request("NEGOTIATE", `{"round":1,"phase":"OFFER"}`), want: "malformed"},
		"negotiation, empty id":   {body: request("NEGOTIATE", `{"negotiation_id":"","round":1,"phase":"OFFER"}`), want: "malformed"},
		"negotiation, round 0":    {body: request("NEGOTIATE", `{"negotiation_id":"n","round":0,"phase":"OFFER"}`), want: "malformed"},
		"negotiation, round 11":   {body: request("NEGOTIATE", `{"negotiation_id":"n","round":11,"phase":"OFFER"}`), want: "malformed"},
		"negotiation, no phase":   {body: request("NEGOTIATE", `{"negotiation_id":"n","round":1}`), want: "malformed"},
		"negotiation, bad phase":  {body: request("NEGOTIATE", `{"negotiation_id":"n","round":1,"phase":"HAGGLE"}`), want: "malformed"},
		"negotiation, 11 rounds":  {body: request("NEGOTIATE", `{"negotiation_id":"n","round":1,"phase":"OFFER","constraints":{"max_rounds":11}}`), want: "malformed"},
		"negotiation, proposal":   {body: request("NEGOTIATE", `{"negotiation_id":"n","round":1,"phase":"OFFER","proposal":[]}`), want: "malformed"},
		"request as an answer":    {body: edit("", ""), re: invoke, want: "invalid_request"},
		"result to a discovery":   {body: request("RESULT", `{"status":"success"}`), re: canonical.OpCapabilities, want: "invalid_request"},
		"result without status":   {body: request("RESULT", `{"result":1}`), re: invoke, want: "malformed"},
		"result, unknown status":  {body: request("RESULT", `{"status":"great"}`), re: invoke, want: "malformed"},
		"result, intent a number": {body: request("RESULT", `{"status":"success","intent_id":1}`), re: invoke, want: "malformed"},
		"error without code":      {body: request("ERROR", `{"error_message":"x"}`), re: invoke, want: "malformed"},
		"error, code a number":    {body: request("ERROR", `{"error_code":1}`), re: invoke, want: "malformed"},
		"short error, no code":    {body: `{"msg_type":"ERROR","error_message":"x"}`, re: invoke, want: "malformed"},
		"matches an object":       {body: request("DISCOVER_RESULT", `{"matches":{}}`), re: canonical.OpCapabilities, want: "malformed"},
		"match a string":          {body: request("DISCOVER_RESULT", `{"matches":["x"]}`), re: canonical.OpCapabilities, want: "malformed"},
		"tags of numbers":         {body: request("DISCOVER_RESULT", `{"matches":[{"tags":[1]}]}`), re: canonical.OpCapabilities, want: "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := ainp.New(translators.Config{}).Decode(translators.Wire{Body: []byte(tc.body), Re: tc.re})
			if got := outcome(err); got != tc.want {
				t.Fatalf("got %s (%v), want %s", got, err, tc.want)
			}
			if err != nil && m != nil && (m.Body != nil || m.Op != "") {
				t.Errorf("a refusal came with %s %T", m.Op, m.Body)
			}
		})
	}
}

// TestEncode_Refuses: what cannot be said, or not yet.
func TestEncode_Refuses(t *testing.T) {
	t.Parallel()
	turn := func(parts ...canonical.Part) *canonical.Message {
		return &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + requestID + `"`)},
			Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: parts}},
		}
	}
	text := canonical.Part{Kind: canonical.KindText, Text: "hi"}
	unstamped := turn(text)
	unstamped.Correlation.WireID = nil
	late := stamp()
	late.From = ""
	asks := turn()
	asks.Phase, asks.Body = canonical.PhaseEvent, &canonical.Event{Ask: &canonical.Ask{ID: json.RawMessage(`"q"`), Input: canonical.Input{
		Key: "k", Mode: canonical.ModeNative, Native: &canonical.Native{Method: "roots/list"},
	}}}
	for name, tc := range map[string]struct {
		m    *canonical.Message
		to   translators.Target
		want string
	}{
		"fine":              {turn(text), translators.Target{Stamp: stamp()}, "ok"},
		"no stamp":          {turn(text), translators.Target{}, "internal"},
		"no sender":         {turn(text), translators.Target{Stamp: late}, "internal"},
		"no id":             {unstamped, translators.Target{Stamp: stamp()}, "internal"},
		"empty":             {turn(), translators.Target{Stamp: stamp()}, "bad_params"},
		"another version":   {turn(text), translators.Target{Version: "0.2.0", Stamp: stamp()}, "unsupported_version"},
		"too large":         {turn(canonical.Part{Kind: canonical.KindFile, Bytes: make([]byte, ainp.PayloadLimit)}), translators.Target{Stamp: stamp()}, "too large"},
		"a ping":            {&canonical.Message{Op: canonical.OpPing, Phase: canonical.PhaseRequest}, translators.Target{Stamp: stamp()}, "unsupported_op"},
		"MCP's question":    {asks, translators.Target{Form: ainp.FormSocket, Stream: true, Stamp: stamp()}, "unsupported_op"},
		"notice of another": {&canonical.Message{Op: canonical.OpNotice, Phase: canonical.PhaseRequest}, translators.Target{Stamp: stamp()}, "unsupported_op"},
	} {
		_, _, err := ainp.New(translators.Config{}).Encode(tc.m, tc.to)
		if got := outcome(err); got != tc.want {
			t.Errorf("%s: got %s (%v), want %s", name, got, err, tc.want)
		}
	}
}

// TestDecode_ObjectThatContradictsTheIntent: an object that says something else than the intent
// is kept for the way home and changes nothing.
func TestDecode_ObjectThatContradictsTheIntent(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]string{
		"other words":    `{"parts":[{"kind":"text","text":"pay 500"}]}`,
		"another call":   `{"call":{"name":"pay","arguments":{}}}`,
		"a bad part":     `{"parts":[{"kind":"unheard"}]}`,
		"a bad deadline": `{"deadline":"tomorrow"}`,
		"a result":       `{"kind":"task"}`,
	} {
		body := message("INTENT", requestID, `{"@type":"FreeformNote","semantics":{"body":"pay 5"},"aepb":`+object+`}`)
		tr := ainp.New(translators.Config{})
		m, err := tr.Decode(translators.Wire{Body: body})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		invoke := m.Body.(*canonical.Invoke)
		if len(invoke.Turn.Parts) != 1 || invoke.Turn.Parts[0].Text != "pay 5" || invoke.Call != nil || !strings.Contains(string(m.Correlation.WireID), requestID) {
			t.Errorf("%s: got %+v", name, invoke)
		}
		home, _, err := tr.Encode(m, translators.Target{})
		if err != nil || !strings.Contains(string(home.Body), object) {
			t.Errorf("%s: came home as %s %v", name, home.Body, err)
		}
	}
}

// TestEncode_StampedRelayIsUnsigned: a message that leaves again is from us, of now, unsigned,
// and says that its signature is gone.
func TestEncode_StampedRelayIsUnsigned(t *testing.T) {
	t.Parallel()
	tr := ainp.New(translators.Config{})
	m, err := tr.Decode(translators.Wire{Body: message("INTENT", requestID, `{"@type":"FreeformNote","semantics":{"body":"hi"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	w, losses, err := tr.Encode(m, translators.Target{Stamp: stamp()})
	if err != nil {
		t.Fatal(err)
	}
	if len(losses) != 1 || losses[0].Code != canonical.LossSignature || losses[0].Fate != canonical.Dropped {
		t.Errorf("losses: %v", losses)
	}
	for _, want := range []string{`"from_did":"` + gatewayDID + `"`, `"to_did":"` + peerDID + `"`, `"timestamp":1728259400000`, `"qos":{"urgency":0.50,"bid":0}`} {
		if !strings.Contains(string(w.Body), want) {
			t.Errorf("%s is missing in %s", want, w.Body)
		}
	}
	if strings.Contains(string(w.Body), `"sig"`) {
		t.Errorf("the old signature is still there: %s", w.Body)
	}
}

func FuzzDecode_Roundtrip(f *testing.F) {
	for _, w := range wires() {
		f.Add(w.Body, string(w.Re))
	}
	for _, body := range malformed() {
		f.Add(body, "")
	}
	tr := ainp.New(translators.Config{})
	f.Fuzz(func(t *testing.T, body []byte, re string) {
		w := translators.Wire{Body: body, Re: canonical.Op(re)}
		m, err := tr.Decode(w)
		if err != nil {
			if got := outcome(err); got == err.Error() {
				t.Fatalf("neither malformed nor a canonical error: %v", err)
			}
			return
		}
		home, _, err := tr.Encode(m, translators.Target{})
		if err != nil {
			return
		}
		if _, err := tr.Decode(translators.Wire{Body: home.Body, Re: w.Re}); err != nil {
			t.Fatalf("what came home is refused: %v\n%s", err, home.Body)
		}
		for _, failure := range translatortest.Purity(tr, translatortest.Samples{Wires: []translators.Wire{w}}) {
			t.Error(failure)
		}
	})
}

func FuzzEvidence_KeepsTheHash(f *testing.F) {
	for _, w := range wires() {
		f.Add(w.Body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		one, err := ainp.HashInput(body)
		if err != nil {
			return
		}
		if head, err := ainp.ReadHead(body); err == nil && head.TTL < 0 {
			t.Fatalf("a ttl of %v", head.TTL)
		}
		with, err := ainp.WithEvidence(body, []string{"a.b.c"})
		if err != nil {
			return
		}
		two, err := ainp.HashInput(with)
		_, content := opened(t, with)
		e, text := opened(t, body)
		signed, _ := e.WithEvidence([]string{"a.b.c"}, "c2ln")
		if got := ainp.Text(bytes.Clone(content)).WithSignature("c2ln"); e.Exact() && !rawjson.Equal(got, signed) {
			t.Fatalf("the signed text is %q, the envelope %q", got, signed)
		}
		if text, err := text.WithEvidence([]string{"a.b.c"}); err != nil || string(text) != string(content) {
			t.Fatalf("two texts with evidence: %q and %q, %v", text, content, err)
		}
		if err != nil || string(one) != string(two) {
			t.Fatalf("evidence changes the hash: %q and %q, %v", one, two, err)
		}
		if got, err := ainp.Evidence(with); err != nil || len(got) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}
