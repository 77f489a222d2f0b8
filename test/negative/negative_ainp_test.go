package negative

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

// ainpRefusal is a message at the AINP endpoint that is refused, and how: status
// and AINP's own error code.
type ainpRefusal struct {
	name   string
	agent  string // "": calculator
	body   func(t *testing.T, b *gatewaytest.Fixture) string
	change func(l *gatewaytest.HTTPRequest)
	status int
	code   string
}

// at gives a good envelope another time.
func sentAt(offset time.Duration, ttl string) func(*testing.T, *gatewaytest.Fixture) string {
	return func(t *testing.T, b *gatewaytest.Fixture) string {
		t.Helper()
		text := gatewaytest.EnvelopeOf(t, gatewaytest.Did("alice"), gatewaytest.Addition(b.Number()))
		head, err := gatewaytest.AINPHead(text)
		gatewaytest.Must(t, err)
		was := strconv.FormatInt(head.At.UnixMilli(), 10)
		is := strconv.FormatInt(head.At.Add(offset).UnixMilli(), 10)
		return string(gatewaytest.Signed(gatewaytest.Did("alice"), []byte(gatewaytest.Replaced(t, string(text), was, is, `"ttl":60000`, `"ttl":`+ttl)), ainp.SigDraft))
	}
}

func plainText(text string) func(*testing.T, *gatewaytest.Fixture) string {
	return func(*testing.T, *gatewaytest.Fixture) string { return text }
}

func ainpRefusals() []ainpRefusal {
	const bad, sig = "VALIDATION_ERROR", "INVALID_SIGNATURE"
	intent, add := `"msg_type":"INTENT"`, `"service_type":"add"`
	return []ainpRefusal{
		{name: "nothing", body: plainText(""), status: 400, code: bad},
		{name: "another version", body: gatewaytest.EnvelopeWith(`"version":"0.1.0"`, `"version":"9.9.9"`), status: 404, code: "UNSUPPORTED_SCHEMA"},
		{name: "no such type", body: gatewaytest.EnvelopeWith(intent, `"msg_type":"SHOUT"`), status: 422, code: "NOT_IMPLEMENTED"},
		{name: "an answer", body: gatewaytest.EnvelopeWith(intent, `"msg_type":"RESULT"`, `"payload":{`, `"payload":{"status":"success",`), status: 400, code: bad},
		{name: "a task that is not there", body: gatewaytest.EnvelopeWith(`"@type":"RequestService"`, `"@type":"TaskQuery"`, add, `"task_id":"t-1"`), status: 404, code: "INTERNAL_ERROR"},
		{name: "the end of a task that is not there", body: gatewaytest.EnvelopeWith(`"@type":"RequestService"`, `"@type":"TaskCancel"`, add, `"task_id":"t-1"`), status: 404, code: "INTERNAL_ERROR"},
		{name: "the end of an intent that is not under way", body: gatewaytest.EnvelopeWith(`"@type":"RequestService"`, `"@type":"TaskCancel"`, add, `"intent_id":"550e8400-e29b-41d4-a716-446655440000"`), status: 409, code: "INTERNAL_ERROR"},
		{name: "an answer to a task that is not there", body: gatewaytest.EnvelopeWith(`"@type":"RequestService"`, `"@type":"TaskAnswer"`, add, `"task_id":"t-1"`), status: 404, code: "INTERNAL_ERROR"},
		{name: "a rollback with a token that is none", body: gatewaytest.EnvelopeWith(`"@type":"RequestService"`, `"@type":"AtdRollbackRequest"`, add, `"ect":"a.b.c"`), status: 400, code: "UNAUTHORIZED"},
		{name: "no such tool", body: gatewaytest.EnvelopeWith(add, `"service_type":"fly"`), status: 404, code: "INTERNAL_ERROR"},
		{name: "unsigned", body: func(t *testing.T, b *gatewaytest.Fixture) string {
			t.Helper()
			return string(gatewaytest.EnvelopeOf(t, gatewaytest.Did("alice"), gatewaytest.Addition(b.Number())))
		}, status: 401, code: sig},
		{name: "signed by somebody else", body: func(t *testing.T, b *gatewaytest.Fixture) string {
			t.Helper()
			return string(gatewaytest.Signed(gatewaytest.Did("mallory"), gatewaytest.EnvelopeOf(t, gatewaytest.Did("alice"), gatewaytest.Addition(b.Number())), ainp.SigDraft))
		}, status: 401, code: sig},
		{name: "a DID in a place that may not be asked", body: gatewaytest.EnvelopeWith(gatewaytest.Did("alice").DID, "did:web:169.254.169.254"), status: 401, code: sig},
		{name: "expired", body: sentAt(-time.Hour, "60000"), status: 400, code: bad},
		{name: "no such agent", agent: "nobody", body: gatewaytest.EnvelopeWith(), status: 404, code: "INTERNAL_ERROR"},
		{name: "an agent for others", agent: "closed", body: gatewaytest.EnvelopeWith(), status: 403, code: "UNAUTHORIZED"},
		{name: "an agent that wants an ECT", agent: "strict", body: gatewaytest.EnvelopeWith(), status: 403, code: "UNAUTHORIZED"},
		{name: "GET", body: gatewaytest.EnvelopeWith(), change: func(l *gatewaytest.HTTPRequest) { l.Method = http.MethodGet }, status: 405, code: bad},
		{name: "another media type", body: gatewaytest.EnvelopeWith(), change: func(l *gatewaytest.HTTPRequest) { l.Media = "text/plain" }, status: 415, code: "UNSUPPORTED_SCHEMA"},
		{name: "an ECT that is none", body: gatewaytest.EnvelopeWith(), change: func(l *gatewaytest.HTTPRequest) { l.Tokens = []string{"x.y.z"} }, status: 400, code: "UNAUTHORIZED"},
	}
}

// TestAINPEndpoint_Refuses: each refusal by its status and AINP's own code, signed by
// the gateway, and good calls work afterwards.
func TestAINPEndpoint_Refuses(t *testing.T) {
	t.Parallel()
	b := shared()
	t.Run("refused", func(t *testing.T) {
		for _, c := range ainpRefusals() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if c.agent == "" {
					c.agent = "calculator"
				}
				l := gatewaytest.HTTPRequest{At: "/agents/" + c.agent + "/ainp", Body: c.body(t, b)}
				if c.change != nil {
					c.change(&l)
				}
				b.RefusedAINP(t, b.Send(t, l), c.status, c.code)
			})
		}
	})
	t.Run("good calls afterwards", b.Works)
}

// TestAINPEndpoint_Replay: a message is taken once, whoever brings it again.
func TestAINPEndpoint_Replay(t *testing.T) {
	t.Parallel()
	b := shared()
	n := b.Number()
	l := gatewaytest.HTTPRequest{At: "/agents/calculator/ainp", Body: string(gatewaytest.Signed(gatewaytest.Did("alice"), gatewaytest.EnvelopeOf(t, gatewaytest.Did("alice"), gatewaytest.Addition(n)), ainp.SigDraft))}
	b.Right(t, b.Send(t, l), strconv.FormatInt(n+1, 10))
	b.RefusedAINP(t, b.Send(t, l), http.StatusBadRequest, "DUPLICATE_INTENT")
	l.Via = b.Anonymous
	b.RefusedAINP(t, b.Send(t, l), http.StatusBadRequest, "DUPLICATE_INTENT")
}

// TestAINPEndpoint_DIDIdentifiesWorkload: where the operator says so, a signature is an
// identity; a certificate beside it must be of the same workload.
// The gateway is its own, whose operator says so.
func TestAINPEndpoint_DIDIdentifiesWorkload(t *testing.T) {
	t.Parallel()
	const alice = "spiffe://" + gatewaytest.TrustDomain + "/alice"
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{AINP: config.AINP{Callers: map[string]string{gatewaytest.Did("alice").DID: alice}}}})
	listed, ok := b.Directory().Find("closed")
	if !ok {
		t.Fatal("no agent")
	}
	listed.Name, listed.Rules.Callers = "alices", []string{alice}
	gatewaytest.Must(t, b.Directory().Put(listed))
	post := func(via *http.Client, who string) gatewaytest.Reply {
		return b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/alices/ainp", Body: gatewaytest.AddressedTo(t, gatewaytest.Did(who), b.AINP.DID, 1)})
	}
	b.Right(t, post(b.Anonymous, "alice"), `"sum":2`)
	b.RefusedAINP(t, post(b.Anonymous, "bob"), http.StatusForbidden, "UNAUTHORIZED")
	b.RefusedAINP(t, post(b.Client, "alice"), http.StatusBadRequest, "INVALID_SIGNATURE")
	b.Right(t, post(b.Caller(t, b.SVID(t, "/alice")), "alice"), `"sum":2`)
}

// TestAINPAgent_InvalidAnswers: what an agent answers that is no answer.
func TestAINPAgent_InvalidAnswers(t *testing.T) {
	t.Parallel()
	b := shared()
	sender := gatewaytest.Did("scribe")
	other := func(change ...string) gatewaytest.Spoil {
		return func(good []byte) []byte {
			text := string(good)
			for i := 0; i+1 < len(change); i += 2 {
				text = strings.Replace(text, change[i], change[i+1], 1)
			}
			return gatewaytest.Signed(sender, []byte(text), ainp.SigDraft)
		}
	}
	raw := func(text string) gatewaytest.Spoil { return func([]byte) []byte { return []byte(text) } }
	token := ecttest.Mint(t, b.Me, b.Recipe("another body"))
	for name, s := range map[string]gatewaytest.Spoil{
		"nothing": raw(""), "no JSON": raw("hello"), "a list": raw("[]"), "an empty object": raw("{}"),
		"changed":                  func(good []byte) []byte { return []byte(strings.Replace(string(good), `"sum":`, `"sum":1`, 1)) },
		"a status of another type": other(`"status":"success"`, `"status":7`),
		"a discovery":              other(`"msg_type":"RESULT"`, `"msg_type":"DISCOVER_RESULT"`),
		"an intent of its own":     other(`"msg_type":"RESULT"`, `"msg_type":"INTENT"`),
		"an unknown type":          other(`"msg_type":"RESULT"`, `"msg_type":"SHOUT"`),
		"another version":          other(`"version":"0.1.0"`, `"version":"9"`),
		"from the future":          other(`"timestamp":1`, `"timestamp":9`),
		"evidence of another body": func(good []byte) []byte {
			with, err := gatewaytest.AINPWithEvidence(good, []string{token})
			if err != nil {
				return nil
			}
			return gatewaytest.Signed(sender, with, ainp.SigDraft)
		},
		"evidence that is none": func(good []byte) []byte {
			with, err := gatewaytest.AINPWithEvidence(good, []string{"x.y.z"})
			if err != nil {
				return nil
			}
			return gatewaytest.Signed(sender, with, ainp.SigDraft)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := "scribe-" + strings.ReplaceAll(strings.ToLower(name), " ", "-")
			b.AINPAgent(t, agent, &gatewaytest.AINPFake{Who: sender, Spoil: s}, directory.Endpoint{DID: sender.DID})
			body := gatewaytest.AddBody(b.Number())
			l := gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + agent, Body: body, Tokens: []string{b.Token(t, body)}}
			b.Refused(t, l, b.Send(t, l), gatewaytest.Want{Status: http.StatusBadGateway, Code: "bad_upstream_reply", Proof: "internal_error"})
		})
	}
}

// TestAINPAgent_Unsigned: an agent that cannot sign is believed where its operator says so.
func TestAINPAgent_Unsigned(t *testing.T) {
	t.Parallel()
	b := shared()
	b.AINPAgent(t, "mute", &gatewaytest.AINPFake{Spoil: func(good []byte) []byte {
		return []byte(strings.Replace(string(good), `"sig":`, `"gis":`, 1))
	}}, directory.Endpoint{Signature: directory.SignatureNone})
	n := b.Number()
	b.Right(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=mute", Body: gatewaytest.AddBody(n)})), strconv.FormatInt(n+1, 10))
}

// TestAINPEndpoint_SourceEvidence: an AINP caller brings its ECT inside, and it
// is judged by the message without it.
func TestAINPEndpoint_SourceEvidence(t *testing.T) {
	t.Parallel()
	b := shared()
	post := func(about string) gatewaytest.Reply {
		body := gatewaytest.EnvelopeOf(t, gatewaytest.Did("alice"), gatewaytest.Addition(1))
		input, err := ainp.HashInput(body)
		gatewaytest.Must(t, err)
		recipe := b.Recipe("")
		recipe.Claims.OutputHash = ect.Hash(append(input, about...))
		body, err = gatewaytest.AINPWithEvidence(body, []string{ecttest.Mint(t, b.Me, recipe)})
		gatewaytest.Must(t, err)
		return b.Send(t, gatewaytest.HTTPRequest{At: "/agents/strict/ainp", Body: string(gatewaytest.Signed(gatewaytest.Did("alice"), body, ainp.SigDraft))})
	}
	b.Right(t, post(""), `"sum":2`)
	b.RefusedAINP(t, post("x"), http.StatusForbidden, "UNAUTHORIZED")
}
