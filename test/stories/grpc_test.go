package stories

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
)

// overGRPC starts an agent that speaks gRPC alone and lists it as "caller".
func overGRPC(t *testing.T, b *gatewaytest.Fixture) grpctest.Agent {
	t.Helper()
	who := b.SVID(t, "/caller")
	agent := grpctest.NewAgent(t, peers.Deps{TLS: gatewaytest.Serving(who)})
	t.Cleanup(func() { gatewaytest.StopWithin(t, agent.Stop) })
	gatewaytest.Must(t, b.Directory().Put(directory.Agent{
		Name: "caller", ID: who.ID, Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: agent.URL(), GRPC: agent.GRPC()}},
	}))
	return agent
}

// proven demands tokens of ours, among them one for what came in and one for
// what went out.
func proven(t *testing.T, b *gatewaytest.Fixture, tokens []string, in, out string) {
	t.Helper()
	sawIn, sawOut := in == "", out == ""
	for _, compact := range tokens {
		v, err := b.Judge.Verify(context.WithoutCancel(t.Context()), compact, ect.Check{Purpose: ect.Parent})
		if err != nil {
			t.Errorf("an ECT does not verify: %v", err)
			continue
		}
		sawIn = sawIn || v.Claims().InputHash == in
		sawOut = sawOut || v.Claims().OutputHash == out
	}
	if !sawIn || !sawOut || len(tokens) == 0 {
		t.Errorf("%d tokens: one for the request %t, one for the reply %t", len(tokens), sawIn, sawOut)
	}
}

// warned is what the token about a request warns of.
func warned(t *testing.T, b *gatewaytest.Fixture, tokens []string, in string) []string {
	t.Helper()
	for _, compact := range tokens {
		v, err := b.Judge.Verify(context.WithoutCancel(t.Context()), compact, ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		if claims := v.Claims(); claims.InputHash == in {
			warnings, _ := claims.Ext.Strings(ect.ExtWarnings)
			return warnings
		}
	}
	return nil
}

// headerECT is the metadata with evidence.
const headerECT = "execution-context"

func TestGRPCServer_CallsWithEvidence(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	overGRPC(t, b)
	c := b.Remote(t, b.ClientTLS(t, b.Dev.Client))
	call := func(t *testing.T, method string, bytes []byte, fields ...string) grpctest.Reply {
		t.Helper()
		got := c.Call(t.Context(), method, [][]byte{bytes}, fields...)
		if got.Code != "OK" || len(got.Messages) == 0 {
			t.Fatalf("%s: %s", got.Code, got.Details)
		}
		return got
	}
	t.Run("to MCP, with evidence for the bytes that travelled", func(t *testing.T) {
		sent := gatewaytest.Request(t, "SendMessage", gatewaytest.AddTo)
		got := call(t, "SendMessage", sent, headerECT, b.Token(t, string(sent)))
		if len(got.Messages) != 1 || !strings.Contains(string(got.Messages[0]), "sum\x12\x09\x11\x00\x00\x00\x00\x00\x00E@") /* 42 as a double */ {
			t.Errorf("no sum in %q", got.Messages)
		}
		proven(t, b, got.Header[headerECT], ect.Hash(sent), ect.Hash(got.Messages[0]))
	})
	for name, agent := range map[string]string{"JSON-RPC": "concierge", "gRPC": "caller"} {
		t.Run("to A2A over "+name, func(t *testing.T) {
			sent := gatewaytest.Request(t, "SendMessage", gatewaytest.MessageTo(agent, "hello"))
			got := call(t, "SendMessage", sent)
			if !strings.Contains(string(got.Messages[0]), "You said: hello") {
				t.Errorf("got %q", got.Messages)
			}
			proven(t, b, got.Header[headerECT], ect.Hash(sent), ect.Hash(got.Messages[0]))
		})
		t.Run("a stream from A2A over "+name, func(t *testing.T) {
			got := call(t, "SendStreamingMessage", gatewaytest.Request(t, "SendStreamingMessage", gatewaytest.MessageTo(agent, "good evening")))
			var notified ect.StreamHash
			for _, message := range got.Messages {
				notified.Add(message)
			}
			if notified.Count() < 2 {
				t.Errorf("%d events", notified.Count())
			}
			proven(t, b, got.Header[headerECT], "", "")
			proven(t, b, got.Trailer[headerECT], "", notified.Sum())
		})
	}
	t.Run("our name for the agent is not told to it", func(t *testing.T) {
		for _, answer := range b.Talker.Received() {
			if strings.Contains(string(answer.Body), "tenant") {
				t.Errorf("the agent was told %s", answer.Body)
			}
		}
	})
	t.Run("a tenant beside our name is", func(t *testing.T) {
		call(t, "SendMessage", gatewaytest.Request(t, "SendMessage", gatewaytest.MessageTo("floor-7", "hello")), "aepb-agent", "concierge")
		received := b.Talker.Received()
		if last := received[len(received)-1]; !strings.Contains(string(last.Body), `"tenant":"floor-7"`) {
			t.Errorf("the agent was told %s", last.Body)
		}
	})
	t.Run("the agent by metadata", func(t *testing.T) {
		call(t, "SendMessage", gatewaytest.Request(t, "SendMessage", strings.Replace(gatewaytest.AddTo, `"tenant":"calculator",`, "", 1)), "aepb-agent", "calculator")
	})
	t.Run("fields of a later version are declared lost", func(t *testing.T) {
		for _, agent := range []string{"calculator", "concierge"} { // MCP, and A2A in JSON
			sent := append(gatewaytest.Request(t, "SendMessage", strings.Replace(gatewaytest.AddTo, "calculator", agent, 1)), "\xc2\x0c\x01x"...)
			if w := warned(t, b, call(t, "SendMessage", sent).Header[headerECT], ect.Hash(sent)); !slices.Contains(w, "L29 dropped /body") {
				t.Errorf("%s: the translation warns of %q", agent, w)
			}
		}
	})
	t.Run("from MCP to gRPC", func(t *testing.T) {
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/caller/mcp", Body: gatewaytest.CallBody("concierge", "hello"), Header: gatewaytest.Mirror("tools/call", "concierge")})
		b.Right(t, got, "You said: hello")
	})
	t.Run("from JSON-RPC to gRPC", func(t *testing.T) {
		b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: "/agents/caller/a2a", Body: gatewaytest.TextBody("hello"), Header: map[string]string{"A2A-Version": "1.0"}}), "You said: hello")
	})
	b.Works(t)
}

// What the server over gRPC refuses, with its exact code and reason.
func TestGRPCServer_Refuses(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	overGRPC(t, b)
	send := func(text string) []byte { return gatewaytest.Request(t, "SendMessage", text) }
	good := send(gatewaytest.AddTo)
	token := b.Token(t, string(good))
	deep := strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200)
	cases := map[string]struct {
		method       string
		messages     [][]byte
		fields       []string
		code, reason string
		rest         string // in what else is said
	}{
		"no such method":         {"Sing", [][]byte{good}, nil, "UNIMPLEMENTED", "METHOD_NOT_FOUND", ""},
		"no such service":        {"/a2a.v1.A2AService/SendMessage", [][]byte{good}, nil, "UNIMPLEMENTED", "METHOD_NOT_FOUND", ""},
		"no message":             {"SendMessage", nil, nil, "INVALID_ARGUMENT", "INVALID_REQUEST", "no message"},
		"two messages":           {"SendMessage", [][]byte{good, good}, nil, "INVALID_ARGUMENT", "INVALID_REQUEST", "a second message"},
		"nobody is named":        {"SendMessage", [][]byte{send(strings.Replace(gatewaytest.AddTo, `"tenant":"calculator",`, "", 1))}, nil, "INVALID_ARGUMENT", "INVALID_PARAMS", "name the agent"},
		"named twice":            {"SendMessage", [][]byte{good}, []string{"aepb-agent", "a", "aepb-agent", "b"}, "INVALID_ARGUMENT", "INVALID_REQUEST", "twice"},
		"an unknown agent":       {"SendMessage", [][]byte{send(gatewaytest.MessageTo("nobody", "x"))}, nil, "NOT_FOUND", "SKILL_NOT_FOUND", "unknown_agent"},
		"a closed agent":         {"SendMessage", [][]byte{send(gatewaytest.MessageTo("closed", "x"))}, nil, "PERMISSION_DENIED", "FORBIDDEN", ""},
		"an agent that wants it": {"SendMessage", [][]byte{send(gatewaytest.MessageTo("strict", "x"))}, nil, "PERMISSION_DENIED", "FORBIDDEN", "ect_required"},
		"not protobuf":           {"SendMessage", [][]byte{[]byte(`{"tenant":"calculator"}`)}, []string{"aepb-agent", "calculator"}, "INVALID_ARGUMENT", "PARSE", ""},
		"cut off":                {"SendMessage", [][]byte{good[:len(good)-3]}, []string{"aepb-agent", "calculator"}, "INVALID_ARGUMENT", "PARSE", ""},
		"text that is none":      {"SendMessage", [][]byte{[]byte("\x0a\x02\xff\xfe")}, []string{"aepb-agent", "calculator"}, "INVALID_ARGUMENT", "PARSE", ""},
		"nothing in it":          {"SendMessage", [][]byte{{}}, []string{"aepb-agent", "calculator"}, "INVALID_ARGUMENT", "INVALID_PARAMS", "/params/message"},
		"a part without content": {"SendMessage", [][]byte{send(`{"tenant":"calculator","message":{"messageId":"m","role":"ROLE_USER","parts":[{}]}}`)}, nil, "INVALID_ARGUMENT", "INVALID_PARAMS", "exactly one of"},
		"no role":                {"SendMessage", [][]byte{send(`{"tenant":"calculator","message":{"messageId":"m","parts":[{"text":"x"}]}}`)}, nil, "INVALID_ARGUMENT", "INVALID_PARAMS", "role"},
		"too deep":               {"SendMessage", [][]byte{send(`{"tenant":"calculator","message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":` + deep + `}]}}`)}, nil, "INVALID_ARGUMENT", "PARSE", ""},
		"too many values":        {"SendMessage", [][]byte{many(300_000)}, []string{"aepb-agent", "calculator"}, "INVALID_ARGUMENT", "PARSE", "too many"},
		"16 MiB and one byte":    {"SendMessage", [][]byte{make([]byte, 16<<20+1)}, nil, "RESOURCE_EXHAUSTED", "", "larger than max"},
		"an unknown skill":       {"SendMessage", [][]byte{send(strings.Replace(gatewaytest.AddTo, `"add"`, `"divide"`, 1))}, nil, "INVALID_ARGUMENT", "SKILL_NOT_FOUND", ""},
		"another version":        {"SendMessage", [][]byte{good}, []string{"a2a-version", "0.3"}, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED", ""},
		"a broken token":         {"SendMessage", [][]byte{good}, []string{headerECT, "a.b"}, "INVALID_ARGUMENT", "FORBIDDEN", "ect_invalid"},
		"a token for another":    {"SendMessage", [][]byte{send(gatewaytest.MessageTo("calculator", "x"))}, []string{headerECT, token}, "PERMISSION_DENIED", "FORBIDDEN", "ect_invalid"},
		"too many tokens":        {"SendMessage", [][]byte{good}, strings.Split(strings.Repeat(headerECT+" "+token+" ", 40), " ")[:80], "RESOURCE_EXHAUSTED", "FORBIDDEN", ""},
		"a task of nobody":       {"GetTask", [][]byte{gatewaytest.Request(t, "GetTask", `{"tenant":"concierge","id":"nobody's"}`)}, nil, "NOT_FOUND", "TASK_NOT_FOUND", ""},
		"a task of nobody there": {"GetTask", [][]byte{gatewaytest.Request(t, "GetTask", `{"tenant":"caller","id":"nobody's"}`)}, nil, "NOT_FOUND", "TASK_NOT_FOUND", ""},
		"a stream of nobody's":   {"SubscribeToTask", [][]byte{gatewaytest.Request(t, "SubscribeToTask", `{"tenant":"concierge","id":"nobody's"}`)}, nil, "NOT_FOUND", "TASK_NOT_FOUND", ""},
		"no id":                  {"CancelTask", [][]byte{gatewaytest.Request(t, "CancelTask", `{"tenant":"concierge"}`)}, nil, "INVALID_ARGUMENT", "INVALID_PARAMS", ""},
	}
	c := b.Remote(t, b.ClientTLS(t, b.Dev.Client))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := c.Call(t.Context(), tc.method, tc.messages, tc.fields...)
			if got.Code != tc.code || got.Reason != tc.reason || !strings.Contains(got.Details, tc.rest) || len(got.Messages) > 0 {
				t.Errorf("%d messages, %s %s: %s", len(got.Messages), got.Code, got.Reason, got.Details)
			}
			if strings.Contains(got.Details, gatewaytest.Secret) {
				t.Error("the refusal quotes the message")
			}
		})
	}
	b.Works(t)
}

// many is a request with so many empty parts.
func many(parts int) []byte {
	inner := []byte(strings.Repeat("\x2a\x00", parts))
	n := len(inner)
	return append([]byte{0x12, byte(n&0x7f | 0x80), byte(n>>7&0x7f | 0x80), byte(n >> 14)}, inner...)
}

func TestGRPCServer_IdentifiesCallers(t *testing.T) {
	t.Parallel()
	var c config.Config
	tokens := gatewaytest.NewWITCaller(t, &c)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: c})
	good := [][]byte{gatewaytest.Request(t, "SendMessage", strings.Replace(gatewaytest.AddTo, "calculator", "members", 1))}
	t.Run("nobody", func(t *testing.T) {
		got := b.Remote(t, b.ClientTLS(t, nil)).Call(t.Context(), "SendMessage", good)
		if got.Code != "UNAUTHENTICATED" || got.Reason != "UNAUTHENTICATED" {
			t.Errorf("%s %s", got.Code, got.Details)
		}
	})
	t.Run("somebody", func(t *testing.T) {
		got := b.Remote(t, b.ClientTLS(t, b.Dev.Client)).Call(t.Context(), "SendMessage", good)
		if got.Code != "OK" {
			t.Errorf("%s %s", got.Code, got.Details)
		}
	})
	t.Run("a token, whose connection is no stranger's", func(t *testing.T) {
		const method = "/lf.a2a.v1.A2AService/SendMessage"
		fields := tokens.Fields(tokens.TokenUntil(time.Now().Add(time.Minute)), "https://"+b.RPC+method)
		strangers := b.Strangers()
		got := b.Remote(t, b.ClientTLS(t, nil)).Call(t.Context(), method, good, credential.IdentityField, fields[credential.IdentityField], credential.ProofField, fields[credential.ProofField])
		if got.Code != "PERMISSION_DENIED" { // it is known, and not on the list
			t.Errorf("%s %s", got.Code, got.Details)
		}
		if now := b.Strangers(); now > strangers {
			t.Errorf("%d connections of strangers, %d before", now, strangers)
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		conf := b.ClientTLS(t, b.Dev.Client)
		conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		if got := b.Remote(t, conf).Call(t.Context(), "SendMessage", good); got.Code != "UNAVAILABLE" {
			t.Errorf("%s %s", got.Code, got.Details)
		}
	})
}

func TestGRPCServer_RateLimits(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: config.Limits{Rate: 0.001, Burst: 2}}})
	c := b.Remote(t, b.ClientTLS(t, b.Dev.Client))
	var last grpctest.Reply
	for range 4 {
		last = c.Call(t.Context(), "SendMessage", [][]byte{[]byte("no message at all")})
	}
	if last.Code != "RESOURCE_EXHAUSTED" || !strings.Contains(last.Details, "rate_limited") {
		t.Errorf("%s %s", last.Code, last.Details)
	}
}
