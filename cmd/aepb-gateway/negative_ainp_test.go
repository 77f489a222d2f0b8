package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

// ainpRefusal is a message at the AINP door that is refused, and how: status
// and AINP's own error code.
type ainpRefusal struct {
	name   string
	agent  string // "": calculator
	body   func(t *testing.T, b *bed) string
	change func(l *letter)
	status int
	code   string
}

// envelopeWith is a good signed envelope, changed before it was signed.
func envelopeWith(change ...string) func(*testing.T, *bed) string {
	return func(t *testing.T, b *bed) string {
		t.Helper()
		text := string(envelopeOf(t, did("alice"), addition(b.number())))
		return string(signed(did("alice"), []byte(replaced(t, text, change...)), ainp.SigDraft))
	}
}

// spoiledWith is one that was changed after.
func spoiledWith(change ...string) func(*testing.T, *bed) string {
	return func(t *testing.T, b *bed) string {
		t.Helper()
		return replaced(t, string(signed(did("alice"), envelopeOf(t, did("alice"), addition(b.number())), ainp.SigDraft)), change...)
	}
}

func replaced(t *testing.T, text string, change ...string) string {
	t.Helper()
	for i := 0; i+1 < len(change); i += 2 {
		if !strings.Contains(text, change[i]) {
			t.Fatalf("%s is not in %s", change[i], text)
		}
		text = strings.Replace(text, change[i], change[i+1], 1)
	}
	return text
}

// at gives a good envelope another time.
func sentAt(offset time.Duration, ttl string) func(*testing.T, *bed) string {
	return func(t *testing.T, b *bed) string {
		t.Helper()
		text := envelopeOf(t, did("alice"), addition(b.number()))
		head, err := ainpHead(text)
		must(t, err)
		was := strconv.FormatInt(head.At.UnixMilli(), 10)
		is := strconv.FormatInt(head.At.Add(offset).UnixMilli(), 10)
		return string(signed(did("alice"), []byte(replaced(t, string(text), was, is, `"ttl":60000`, `"ttl":`+ttl)), ainp.SigDraft))
	}
}

func plainText(text string) func(*testing.T, *bed) string {
	return func(*testing.T, *bed) string { return text }
}

func ainpRefusals() []ainpRefusal {
	const bad, sig = "VALIDATION_ERROR", "INVALID_SIGNATURE"
	intent, add := `"msg_type":"INTENT"`, `"service_type":"add"`
	return []ainpRefusal{
		{name: "nothing", body: plainText(""), status: 400, code: bad},
		{name: "no JSON", body: plainText("hello"), status: 400, code: bad},
		{name: "a list", body: plainText("[]"), status: 400, code: bad},
		{name: "an empty object", body: plainText("{}"), status: 400, code: bad},
		{name: "half a message", body: plainText(`{"msg_type":"INTENT",`), status: 400, code: bad},
		{name: "too deep", body: plainText(strings.Repeat("[", 200) + strings.Repeat("]", 200)), status: 400, code: bad},
		{name: "a member twice", body: envelopeWith(intent, intent+`,"msg_type":"INTENT"`), status: 400, code: bad},
		{name: "another version", body: envelopeWith(`"version":"0.1.0"`, `"version":"9.9.9"`), status: 404, code: "UNSUPPORTED_SCHEMA"},
		{name: "no such type", body: envelopeWith(intent, `"msg_type":"SHOUT"`), status: 422, code: "NOT_IMPLEMENTED"},
		{name: "an answer", body: envelopeWith(intent, `"msg_type":"RESULT"`, `"payload":{`, `"payload":{"status":"success",`), status: 400, code: bad},
		{name: "an answer without a status", body: envelopeWith(intent, `"msg_type":"RESULT"`), status: 400, code: bad},
		{name: "an intent without a type", body: envelopeWith(`"@type":"RequestService",`, ""), status: 400, code: bad},
		{name: "a service without a name", body: envelopeWith(add, `"service_type":""`), status: 400, code: bad},
		{name: "details that are no object", body: envelopeWith(`"details":{`, `"details":7,"other":{`), status: 400, code: bad},
		{name: "a type that is a number", body: envelopeWith(intent, `"msg_type":7`), status: 400, code: bad},
		{name: "a task that is not there", body: envelopeWith(`"@type":"RequestService"`, `"@type":"TaskQuery"`, add, `"task_id":"t-1"`), status: 404, code: "INTERNAL_ERROR"},
		{name: "a task without a name", body: envelopeWith(`"@type":"RequestService"`, `"@type":"TaskQuery"`, add, `"task_id":""`), status: 400, code: bad},
		{name: "the end of a task that is not there", body: envelopeWith(`"@type":"RequestService"`, `"@type":"TaskCancel"`, add, `"task_id":"t-1"`), status: 404, code: "INTERNAL_ERROR"},
		{name: "the end of an intent that is not under way", body: envelopeWith(`"@type":"RequestService"`, `"@type":"TaskCancel"`, add, `"intent_id":"550e8400-e29b-41d4-a716-446655440000"`), status: 409, code: "INTERNAL_ERROR"},
		{name: "the end of nothing", body: envelopeWith(`"@type":"RequestService"`, `"@type":"TaskCancel"`), status: 400, code: bad},
		{name: "an answer to a task that is not there", body: envelopeWith(`"@type":"RequestService"`, `"@type":"TaskAnswer"`, add, `"task_id":"t-1"`), status: 404, code: "INTERNAL_ERROR"},
		{name: "a rollback without a token", body: envelopeWith(`"@type":"RequestService"`, `"@type":"AtdRollbackRequest"`), status: 400, code: bad},
		{name: "a rollback with a token that is none", body: envelopeWith(`"@type":"RequestService"`, `"@type":"AtdRollbackRequest"`, add, `"ect":"a.b.c"`), status: 400, code: "UNAUTHORIZED"},
		{name: "no such tool", body: envelopeWith(add, `"service_type":"fly"`), status: 404, code: "INTERNAL_ERROR"},
		{name: "unsigned", body: func(t *testing.T, b *bed) string {
			t.Helper()
			return string(envelopeOf(t, did("alice"), addition(b.number())))
		}, status: 401, code: sig},
		{name: "changed after it was signed", body: spoiledWith(`"b":1`, `"b":2`), status: 401, code: sig},
		{name: "signed by somebody else", body: func(t *testing.T, b *bed) string {
			t.Helper()
			return string(signed(did("mallory"), envelopeOf(t, did("alice"), addition(b.number())), ainp.SigDraft))
		}, status: 401, code: sig},
		{name: "somebody else's name", body: spoiledWith(did("alice").DID, did("mallory").DID), status: 401, code: sig},
		{name: "a signature that is no base64", body: spoiledWith(`"sig":"`, `"sig":"!`), status: 401, code: sig},
		{name: "a DID of no key", body: envelopeWith(did("alice").DID, "did:key:z6Mk"), status: 401, code: sig},
		{name: "a DID of another method", body: envelopeWith(did("alice").DID, "did:example:alice"), status: 401, code: sig},
		{name: "a DID in a place that may not be asked", body: envelopeWith(did("alice").DID, "did:web:169.254.169.254"), status: 401, code: sig},
		{name: "expired", body: sentAt(-time.Hour, "60000"), status: 400, code: bad},
		{name: "from the future", body: sentAt(time.Hour, "60000"), status: 400, code: bad},
		{name: "a ttl beyond measure", body: sentAt(0, "864000000"), status: 400, code: bad},
		{name: "a ttl that is negative", body: sentAt(0, "-1"), status: 400, code: bad},
		{name: "a ttl that is a text", body: sentAt(0, `"60000"`), status: 400, code: bad},
		{name: "no such agent", agent: "nobody", body: envelopeWith(), status: 404, code: "INTERNAL_ERROR"},
		{name: "an agent for others", agent: "closed", body: envelopeWith(), status: 403, code: "UNAUTHORIZED"},
		{name: "an agent that wants an ECT", agent: "strict", body: envelopeWith(), status: 403, code: "UNAUTHORIZED"},
		{name: "GET", body: envelopeWith(), change: func(l *letter) { l.method = http.MethodGet }, status: 405, code: bad},
		{name: "another media type", body: envelopeWith(), change: func(l *letter) { l.media = "text/plain" }, status: 415, code: "UNSUPPORTED_SCHEMA"},
		{name: "no media type", body: envelopeWith(), change: func(l *letter) { l.media = "-" }, status: 415, code: "UNSUPPORTED_SCHEMA"},
		{name: "compressed", body: envelopeWith(), change: func(l *letter) { l.header = map[string]string{"Content-Encoding": "gzip"} }, status: 415, code: "UNSUPPORTED_SCHEMA"},
		{name: "an ECT that is none", body: envelopeWith(), change: func(l *letter) { l.tokens = []string{"x.y.z"} }, status: 400, code: "UNAUTHORIZED"},
	}
}

// TestAINPDoorRefuses: each refusal by its status and AINP's own code, signed by
// the gateway, and good calls work afterwards.
func TestAINPDoorRefuses(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	t.Run("refused", func(t *testing.T) {
		for _, c := range ainpRefusals() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if c.agent == "" {
					c.agent = "calculator"
				}
				l := letter{at: "/agents/" + c.agent + "/ainp", body: c.body(t, b)}
				if c.change != nil {
					c.change(&l)
				}
				b.refusedAINP(t, b.send(t, l), c.status, c.code)
			})
		}
	})
	t.Run("good calls afterwards", b.works)
}

func (b *bed) refusedAINP(t *testing.T, got reply, status int, code string) {
	t.Helper()
	var said struct {
		Type    string `json:"msg_type"`
		Sig     string `json:"sig"`
		Payload struct {
			Code    string `json:"error_code"`
			Message string `json:"error_message"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(got.body, &said); err != nil || said.Type != ainp.TypeError || said.Sig == "" || said.Payload.Message == "" {
		t.Errorf("no signed AINP error: %d %s", got.status, short(got.body))
	}
	if got.status != status || said.Payload.Code != code {
		t.Errorf("got %d %s, want %d %s: %s", got.status, said.Payload.Code, status, code, said.Payload.Message)
	}
}

// TestAINPRepetition: a message is taken once, whoever brings it again.
func TestAINPRepetition(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	n := b.number()
	l := letter{at: "/agents/calculator/ainp", body: string(signed(did("alice"), envelopeOf(t, did("alice"), addition(n)), ainp.SigDraft))}
	b.right(t, b.send(t, l), strconv.FormatInt(n+1, 10))
	b.refusedAINP(t, b.send(t, l), http.StatusBadRequest, "DUPLICATE_INTENT")
	l.via = b.anonymous
	b.refusedAINP(t, b.send(t, l), http.StatusBadRequest, "DUPLICATE_INTENT")
}

// TestDIDStandsForWorkload: where the operator says so, a signature is an
// identity; a certificate beside it must be of the same workload.
func TestDIDStandsForWorkload(t *testing.T) {
	t.Parallel()
	const alice = "spiffe://" + devTrustDomain + "/alice"
	b := newBed(t, plan{config: config.Config{AINP: config.AINP{Callers: map[string]string{did("alice").DID: alice}}}})
	listed, ok := b.directory.Find("closed")
	if !ok {
		t.Fatal("no agent")
	}
	listed.Name, listed.Rules.Callers = "alices", []string{alice}
	must(t, b.directory.Put(listed))
	post := func(via *http.Client, who string) reply {
		return b.send(t, letter{via: via, at: "/agents/alices/ainp", body: addressedTo(t, did(who), b.settings.ainp.DID, 1)})
	}
	b.right(t, post(b.anonymous, "alice"), `"sum":2`)
	b.refusedAINP(t, post(b.anonymous, "bob"), http.StatusForbidden, "UNAUTHORIZED")
	b.refusedAINP(t, post(b.client, "alice"), http.StatusBadRequest, "INVALID_SIGNATURE")
	b.right(t, post(b.caller(t, b.svid(t, "/alice")), "alice"), `"sum":2`)
}

// TestAINPAgentMisbehaves: what an agent answers that is no answer.
func TestAINPAgentMisbehaves(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	sender := did("scribe")
	other := func(change ...string) spoil {
		return func(good []byte) []byte {
			text := string(good)
			for i := 0; i+1 < len(change); i += 2 {
				text = strings.Replace(text, change[i], change[i+1], 1)
			}
			return signed(sender, []byte(text), ainp.SigDraft)
		}
	}
	raw := func(text string) spoil { return func([]byte) []byte { return []byte(text) } }
	token := ecttest.Mint(t, b.me, b.recipe("another body"))
	for name, s := range map[string]spoil{
		"nothing": raw(""), "no JSON": raw("hello"), "a list": raw("[]"), "an empty object": raw("{}"),
		"routed":                   raw(`{"status":"routed","agent_count":1}`),
		"half":                     func(good []byte) []byte { return good[:len(good)/2] },
		"changed":                  func(good []byte) []byte { return []byte(strings.Replace(string(good), `"sum":`, `"sum":1`, 1)) },
		"unsigned":                 func(good []byte) []byte { return []byte(strings.Replace(string(good), `"sig":`, `"gis":`, 1)) },
		"by somebody else":         func(good []byte) []byte { return signed(did("mallory"), good, ainp.SigDraft) },
		"in another name":          other(sender.DID, did("mallory").DID),
		"another intent":           other(`"intent_id":"`, `"intent_id":"0`),
		"no status":                other(`"status":"success",`, ""),
		"no such status":           other(`"status":"success"`, `"status":"perhaps"`),
		"a status of another type": other(`"status":"success"`, `"status":7`),
		"a discovery":              other(`"msg_type":"RESULT"`, `"msg_type":"DISCOVER_RESULT"`),
		"an intent of its own":     other(`"msg_type":"RESULT"`, `"msg_type":"INTENT"`),
		"an unknown type":          other(`"msg_type":"RESULT"`, `"msg_type":"SHOUT"`),
		"another version":          other(`"version":"0.1.0"`, `"version":"9"`),
		"a member twice":           raw(`{"msg_type":"RESULT","msg_type":"RESULT"}`),
		"too long":                 raw(`{"msg_type":"` + strings.Repeat("x", 2<<20) + `"}`),
		"too deep":                 raw(strings.Repeat("[", 300) + strings.Repeat("]", 300)),
		"from the past":            other(`"timestamp":1`, `"timestamp":0`),
		"from the future":          other(`"timestamp":1`, `"timestamp":9`),
		"evidence of another body": func(good []byte) []byte {
			with, err := ainpWithEvidence(good, []string{token})
			if err != nil {
				return nil
			}
			return signed(sender, with, ainp.SigDraft)
		},
		"evidence that is none": func(good []byte) []byte {
			with, err := ainpWithEvidence(good, []string{"x.y.z"})
			if err != nil {
				return nil
			}
			return signed(sender, with, ainp.SigDraft)
		},
		"evidence of another shape": other(`"payload":{`, `"payload":{"aepb":{"ect":7},`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := "scribe-" + strings.ReplaceAll(strings.ToLower(name), " ", "-")
			b.ainpAgent(t, agent, &ainpFake{who: sender, spoil: s}, directory.Endpoint{DID: sender.DID})
			body := addBody(b.number())
			l := letter{at: "/aepb/translate?from=a2a-v1&dest=" + agent, body: body, tokens: []string{b.token(t, body)}}
			b.refused(t, l, b.send(t, l), want{status: http.StatusBadGateway, code: "bad_upstream_reply", proof: "internal_error"})
		})
	}
}

// TestUnsignedAgent: an agent that cannot sign is believed where its operator says so.
func TestUnsignedAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.ainpAgent(t, "mute", &ainpFake{spoil: func(good []byte) []byte {
		return []byte(strings.Replace(string(good), `"sig":`, `"gis":`, 1))
	}}, directory.Endpoint{Signature: directory.SignatureNone})
	n := b.number()
	b.right(t, b.send(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=mute", body: addBody(n)})), strconv.FormatInt(n+1, 10))
}

// TestSourceEvidenceInTheMessage: an AINP caller brings its ECT inside, and it
// is judged by the message without it.
func TestSourceEvidenceInTheMessage(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	post := func(about string) reply {
		body := envelopeOf(t, did("alice"), addition(1))
		input, err := ainp.HashInput(body)
		must(t, err)
		recipe := b.recipe("")
		recipe.Claims.OutputHash = ect.Hash(append(input, about...))
		body, err = ainpWithEvidence(body, []string{ecttest.Mint(t, b.me, recipe)})
		must(t, err)
		return b.send(t, letter{at: "/agents/strict/ainp", body: string(signed(did("alice"), body, ainp.SigDraft))})
	}
	b.right(t, post(""), `"sum":2`)
	b.refusedAINP(t, post("x"), http.StatusForbidden, "UNAUTHORIZED")
}
