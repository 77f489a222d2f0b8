package gatewaytest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

// The negative suite: what the gateway says to messages, evidence, callers and
// agents that are wrong. Every case names the exact HTTP status and the exact
// code: that of the problem document or, at a native endpoint, the JSON-RPC error's
// number, or the reason of the status, with the problem's code among its details.
//
// The cases of all themes run at the same time against one gateway, unless they need
// settings of their own. It must answer good calls after each theme. What is malformed is
// in the tables of the codecs (translators) and of the transports: here is one case for
// each binding and code, with its status, its form and its evidence. In test/negative, negative_ect_test.go is about
// evidence, negative_message_test.go about what is posted, negative_endpoint_test.go
// and negative_rest_test.go about the native endpoints, negative_caller_test.go
// about who calls and how often, negative_upstream_test.go about agents that
// misbehave, negative_time_test.go about what is still being worked on, and
// negative_admin_test.go about operators.

// Want is an exact refusal.
type Want struct {
	Status int
	Code   string // problem code; at a native endpoint among the details, "" there: the codec's own error
	RPC    int64  // JSON-RPC error number at a native endpoint; 0: a problem document
	Rest   string // reason of the google.rpc.Status, at a native endpoint without JSON-RPC; "": another document
	ID     string // of the JSON-RPC error, raw; "": not looked at
	Bare   bool   // no body at all
	Reason string // part of the detail or message

	// proof is aepb.error of the error ECT that must come along; "": no ECT may
	// come. From policy on every failure leaves one (architecture section 5).
	Proof  string
	Header map[string]string // exact response header fields
}

// Refusal is one case.
type Refusal struct {
	Name string
	Make func(t *testing.T, b *Fixture) HTTPRequest
	Want Want
}

// Refusals runs the cases of a theme, then good calls.
func Refusals(t *testing.T, b *Fixture, cases []Refusal) {
	t.Helper()
	Unique(t, cases)
	t.Run("refused", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				l := c.Make(t, b)
				b.Refused(t, l, b.Send(t, l), c.Want)
			})
		}
	})
	t.Run("good calls afterwards", b.Works)
}

// RefusalsInTurn is [Refusals] for cases that share what expires: they wait for no test that
// runs beside them.
func RefusalsInTurn(t *testing.T, b *Fixture, cases []Refusal) {
	t.Helper()
	Unique(t, cases)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			l := c.Make(t, b)
			b.Refused(t, l, b.Send(t, l), c.Want)
		})
	}
	t.Run("good calls afterwards", b.Works)
}

// Unique demands that no two cases have the same name. One that comes again is an error of the test, which goes on.
func Unique(t *testing.T, cases []Refusal) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.Name] {
			t.Errorf("two cases named %q", c.Name)
		}
		seen[c.Name] = true
	}
}

// Evidence makes a case of a token that is wrong, over a message that is not.
// change gets the good recipe.
func Evidence(name string, change func(b *Fixture, r *ecttest.Recipe), w Want) Refusal {
	return Refusal{Name: name, Want: w, Make: func(t *testing.T, b *Fixture) HTTPRequest {
		t.Helper()
		body := AddBody(b.Number())
		recipe := b.Recipe(body)
		change(b, &recipe)
		return HTTPRequest{Body: body, Tokens: []string{ecttest.Mint(t, b.Me, recipe)}}
	}}
}

// Invalid is the refusal of a well-formed token, for a reason.
func Invalid(reason ect.Reason, claim string) Want {
	text := "refused: " + string(reason)
	if claim != "" {
		text += " (" + claim + ")"
	}
	return Want{Status: http.StatusForbidden, Code: "ect_invalid", Reason: text}
}

// Malformed is the refusal of what is no token at all.
func Malformed(reason string) Want {
	return Want{Status: http.StatusBadRequest, Code: "ect_invalid", Reason: reason}
}

// TooLarge is the refusal of tokens beyond a bound.
func TooLarge(what string) Want {
	return Want{Status: http.StatusRequestHeaderFieldsTooLarge, Code: "ect_invalid", Reason: "execution context " + what + " exceeds"}
}

// Posted makes a case of a request with a good token for whatever it says.
func Posted(name string, l HTTPRequest, w Want) Refusal {
	return Refusal{Name: name, Want: w, Make: func(t *testing.T, b *Fixture) HTTPRequest {
		t.Helper()
		return b.Sealed(t, l)
	}}
}

// Sent makes a case of a request as it is, without a token.
func Sent(name string, l HTTPRequest, w Want) Refusal {
	return Refusal{Name: name, Want: w, Make: func(*testing.T, *Fixture) HTTPRequest { return l }}
}

// binding is the protocol that the request is in, by where it is sent.
func (l HTTPRequest) binding() string {
	at, query, _ := strings.Cut(l.At, "?")
	if l.At == "" {
		at, query, _ = strings.Cut(ToCalculator, "?")
	}
	if parts := strings.Split(at, "/"); len(parts) > 3 && parts[1] == "agents" {
		return parts[3] + "-v1" // of /agents/NAME/PROTOCOL
	}
	_, from, _ := strings.Cut("&"+query, "&from=")
	from, _, _ = strings.Cut(from, "&")
	from, _, _ = strings.Cut(from, "@")
	return from
}

// Good makes a frame of µACP, in one of its carriages, that adds 1 to a number that no other call has.
func Good(carriage string) func(*testing.T, *Fixture) []byte {
	return func(t *testing.T, b *Fixture) []byte {
		t.Helper()
		return FrameOf(t, carriage, Addition(b.Number()))
	}
}

// Rest03 is a call of the tool add in the words of A2A 0.3 over HTTP.
const Rest03 = `{"configuration":{"blocking":true},"message":{"messageId":"m1","role":"ROLE_USER","content":[{"text":"` + Secret + `"},` +
	`{"data":{"data":{"skill":"add","input":{"a":1,"b":2}}}}]}}`

// AskSLIMService is [AskSLIM] for any service.
func AskSLIMService(t *testing.T, caller *tslim.Peer, agent, service, method string, body []byte, metadata map[string]string) (rpc.Frame, error) {
	t.Helper()
	if method == "" || service == tslim.ServiceA2A {
		return AskSLIM(t, caller, agent, method, body, metadata)
	}
	to, err := name.Parse("org/gw/" + agent)
	Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	stream, err := caller.Call(ctx, to, rpc.Request{Service: service, Method: method, Body: body, Metadata: metadata})
	if err != nil {
		return rpc.Frame{}, err
	}
	defer stream.Close()
	return stream.Next(ctx)
}

// EnvelopeWith is a good signed envelope, changed before it was signed.
func EnvelopeWith(change ...string) func(*testing.T, *Fixture) string {
	return func(t *testing.T, b *Fixture) string {
		t.Helper()
		text := string(EnvelopeOf(t, Did("alice"), Addition(b.Number())))
		return string(Signed(Did("alice"), []byte(Replaced(t, text, change...)), ainp.SigDraft))
	}
}

// Replaced is a text in which the first of each pair of change is replaced, once, by the second. What is not in the
// text ends the test.
func Replaced(t *testing.T, text string, change ...string) string {
	t.Helper()
	for i := 0; i+1 < len(change); i += 2 {
		if !strings.Contains(text, change[i]) {
			t.Fatalf("%s is not in %s", change[i], text)
		}
		text = strings.Replace(text, change[i], change[i+1], 1)
	}
	return text
}

// Add asks an agent for n + 1 at the translate endpoint.
func (b *Fixture) Add(t *testing.T, dest string) (Reply, string) {
	t.Helper()
	n := b.Number()
	got := b.Send(t, b.Sealed(t, HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + url.QueryEscape(dest), Body: AddBody(n)}))
	return got, `"sum":` + strconv.FormatInt(n+1, 10)
}
