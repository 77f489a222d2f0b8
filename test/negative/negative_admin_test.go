package negative

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// Who is no operator (R17).
func TestAdmin_RefusesOtherCallers(t *testing.T) {
	t.Parallel()
	b := shared()
	unknown := gatewaytest.Want{Status: 401, Code: "unauthenticated", Header: challenge}
	foreign := gatewaytest.Want{Status: 403, Code: "forbidden"}
	list := func(name string, header map[string]string, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Sent(name, b.Operator("GET", "/api/agents", "", header), w)
	}
	with := func(name, value string) map[string]string { return map[string]string{name: value} }
	named := func(name, host string, w gatewaytest.Want) gatewaytest.Refusal {
		l := b.Operator("GET", "/api/agents", "", nil)
		l.Host = host
		return gatewaytest.Sent(name, l, w)
	}
	admin, err := url.Parse(b.At.Admin)
	gatewaytest.Must(t, err)
	cases := []gatewaytest.Refusal{
		list("no token", with("Authorization", ""), unknown),
		list("wrong token", with("Authorization", "Bearer the-operators-own-token-26-y"), unknown),
		list("the beginning of the token", with("Authorization", "Bearer "+b.AdminToken[:20]), unknown),
		list("the token and more", with("Authorization", "Bearer "+b.AdminToken+"x"), unknown),
		list("the token in another scheme", with("Authorization", "Basic "+b.AdminToken), unknown),
		list("the token without a scheme", with("Authorization", b.AdminToken), unknown),
		list("an empty token", with("Authorization", "Bearer "), unknown),
		list("the token in a cookie", map[string]string{"Authorization": "", "Cookie": "token=" + b.AdminToken}, unknown),
		gatewaytest.Sent("the token in the query", b.Operator("GET", "/api/agents?token="+b.AdminToken, "", with("Authorization", "")), unknown),
		gatewaytest.Sent("no token, to add", b.Operator("POST", "/api/agents", gatewaytest.AgentJSON("a", "mcp-v1", "https://a.example"), with("Authorization", "")), unknown),
		gatewaytest.Sent("no token, to remove", b.Operator("DELETE", "/api/agents/calculator", "", with("Authorization", "")), unknown),
		gatewaytest.Sent("no token, to look", b.Operator("GET", "/api/agents/calculator", "", with("Authorization", "")), unknown),
		{Name: "a certificate instead of a token", Want: unknown, Make: func(_ *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			l := b.Operator("GET", "/api/agents", "", with("Authorization", ""))
			l.Via = b.Client
			return l
		}},
		named("foreign Host", "evil.example", foreign),
		named("foreign Host with the right port", "evil.example:"+admin.Port(), foreign),
		named("Host that ends like ours", "x.localhost", foreign),
		named("Host of another loopback address", "127.0.0.2:"+admin.Port(), foreign),
		list("foreign Origin", with("Origin", "https://evil.example"), foreign),
		list("opaque Origin", with("Origin", "null"), foreign),
		list("our Origin without TLS", with("Origin", "http://"+admin.Host), foreign),
		list("Origin of another port", with("Origin", "https://localhost:1"), foreign),
		list("Origin of the public listener", with("Origin", b.At.Public), foreign),
		gatewaytest.Sent("foreign Origin at the metrics", b.Operator("GET", "/metrics", "", with("Origin", "https://evil.example")), foreign),
		gatewaytest.Sent("foreign Origin, no token", b.Operator("GET", "/api/agents", "", map[string]string{"Origin": "https://evil.example", "Authorization": ""}), foreign),
	}
	gatewaytest.Refusals(t, b, cases)
	t.Run("the operator is let in", func(t *testing.T) {
		for _, header := range []map[string]string{nil, with("Origin", b.At.Admin), with("Authorization", "bearer "+b.AdminToken)} {
			if got := b.Send(t, b.Operator("GET", "/api/agents", "", header)); got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"calculator"`) {
				t.Errorf("%v: got %d: %s", header, got.Status, got.Body)
			}
		}
	})
}

// What an operator cannot have meant.
func TestAdmin_RefusesDocuments(t *testing.T) {
	t.Parallel()
	b := shared()
	bad := func(reason string) gatewaytest.Want {
		return gatewaytest.Want{Status: 400, Code: "malformed_message", Reason: reason}
	}
	put := func(name, document string, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Sent(name, b.Operator("POST", "/api/agents", document, nil), w)
	}
	at := func(name, address string, w gatewaytest.Want) gatewaytest.Refusal {
		return put(name, gatewaytest.AgentJSON("a", "mcp-v1", address), w)
	}
	named := func(name string) gatewaytest.Refusal {
		return put("name "+strconv.Quote(name), gatewaytest.AgentJSON(name, "mcp-v1", "https://a.example"), bad("a name is"))
	}
	good := gatewaytest.AgentJSON("a", "mcp-v1", "https://a.example")
	noDocument := bad("no agent document")
	insecure := bad("must be an https URL")
	noMethod := func(allow string) gatewaytest.Want {
		return gatewaytest.Want{Status: 405, Code: "method_not_allowed", Header: map[string]string{"Allow": allow}}
	}
	unknown := gatewaytest.Want{Status: 404, Code: "unknown_agent"}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		put("empty", "", noDocument),
		put("no JSON", "agents:", noDocument),
		put("truncated", good[:len(good)-3], noDocument),
		put("a list", "["+good+"]", noDocument),
		put("null", "null", bad("")),
		put("two documents", good+good, noDocument),
		put("something behind it", good+" and more", noDocument),
		put("unknown field", strings.Replace(good, `"name"`, `"colour":"red","name"`, 1), noDocument),
		put("unknown field of an endpoint", strings.Replace(good, `"binding"`, `"colour":"red","binding"`, 1), noDocument),
		put("a name twice", strings.Replace(good, `"name"`, `"name":"b","name"`, 1), noDocument),
		put("an endpoint's URL twice", strings.Replace(good, `"url"`, `"url":"https://b.example","url"`, 1), noDocument),
		put("a name in another case", strings.Replace(good, `"name"`, `"Name"`, 1), noDocument),
		put("invalid UTF-8", strings.Replace(good, `"a"`, "\"\xff\"", 1), noDocument),
		put("name is a number", strings.Replace(good, `"a"`, `7`, 1), noDocument),
		put("time limit is a text", strings.Replace(good, `"name"`, `"timeout_seconds":"30s","name"`, 1), noDocument),
		put("time limit below zero", strings.Replace(good, `"name"`, `"timeout_seconds":-1,"name"`, 1), bad("time limit")),
		put("time limit of three centuries", strings.Replace(good, `"name"`, `"timeout_seconds":10000000000,"name"`, 1), bad("time limit")),
		put("no endpoint in the list", `{"name":"a","endpoints":[]}`, bad("at least one endpoint")),
		put("unknown protocol", gatewaytest.AgentJSON("a", "soap-v1", "https://a.example"), bad("does not speak soap-v1")),
		put("two endpoints of one protocol", `{"name":"a","endpoints":[{"binding":"mcp-v1","url":"https://a.example"},{"binding":"mcp-v1","url":"https://b.example"}]}`, bad("two endpoints for mcp-v1")),
		put("a caller that is no SPIFFE id", strings.Replace(good, `"name"`, `"callers":["alice"],"name"`, 1), bad("not a SPIFFE id")),
		put("a caller with a wildcard within", strings.Replace(good, `"name"`, `"callers":["spiffe://aepb.dev/*/x"],"name"`, 1), bad("the only wildcard")),
		put("a whole trust domain as one caller", strings.Replace(good, `"name"`, `"callers":["spiffe://aepb.dev"],"name"`, 1), bad("a trust domain is no caller")),
		put("an identity that is none", strings.Replace(good, `"name"`, `"id":"alice","name"`, 1), bad("SPIFFE id")),
		put("an identity that is a whole trust domain", strings.Replace(good, `"name"`, `"id":"spiffe://aepb.dev","name"`, 1), bad("SPIFFE id")),
		named(""),
		at("http outside loopback", "http://a.example/mcp", insecure),
		at("a file", "file:///etc/passwd", bad("not an absolute URL")),
		at("credentials", "https://user:"+gatewaytest.Secret+"@a.example", bad("must not hold credentials")),
		put("64 KiB and one byte", good+strings.Repeat(" ", 64<<10), gatewaytest.Want{Status: 413, Code: "too_large"}),
		gatewaytest.Sent("show an agent that there is not", b.Operator("GET", "/api/agents/nobody", "", nil), unknown),
		gatewaytest.Sent("remove an agent that there is not", b.Operator("DELETE", "/api/agents/nobody", "", nil), unknown),
		gatewaytest.Sent("PUT the list", b.Operator("PUT", "/api/agents", good, nil), noMethod("GET, POST")),
		gatewaytest.Sent("POST an agent", b.Operator("POST", "/api/agents/calculator", good, nil), noMethod("GET, DELETE")),
		gatewaytest.Sent("POST the metrics", b.Operator("POST", "/metrics", "", nil), noMethod("GET")),
		gatewaytest.Sent("nothing there", b.Operator("GET", "/api/nothing", "", nil), gatewaytest.Want{Status: 404, Code: "not_found"}),
		gatewaytest.Sent("the public surface on the admin listener", b.Operator("POST", "/aepb/translate?from=a2a-v1&dest=calculator", gatewaytest.AddBody(1), nil), gatewaytest.Want{Status: 404, Code: "not_found"}),
	})
	t.Run("nothing of it was listed", func(t *testing.T) {
		if got := b.Send(t, b.Operator("GET", "/api/agents", "", nil)); strings.Contains(string(got.Body), `"name":"a"`) || strings.Contains(string(got.Body), "//a.example") {
			t.Errorf("listed: %s", got.Body)
		}
	})
	t.Run("plain HTTP to loopback is for dev alone", plainLoopback)
}

// plainLoopback: what dev lets an operator list, serve refuses, from the file
// and from the admin API alike.
func plainLoopback(t *testing.T) {
	document := gatewaytest.AgentJSON("plain", "mcp-v1", "http://127.0.0.1:1/mcp")
	dev := shared()
	if got := dev.Send(t, dev.Operator("POST", "/api/agents", document, nil)); got.Status != http.StatusCreated {
		t.Errorf("dev: got %d: %s", got.Status, got.Body)
	}
	dev.Directory().Remove("plain")
	serve := sharedServe()
	l := serve.Operator("POST", "/api/agents", document, nil)
	serve.Refused(t, l, serve.Send(t, l), gatewaytest.Want{Status: 400, Code: "malformed_message", Reason: "must be an https URL"})
}

// A listed agent that cannot be described says why, and not how.
func TestAdmin_ShowsFailures(t *testing.T) {
	t.Parallel()
	b := shared()
	b.Serve(t, "broken", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Well, Silly: gatewaytest.Calling(500, "text/html", gatewaytest.Secret)}, gatewaytest.Host{Timeout: 5 * time.Second})
	got := b.Send(t, b.Operator("GET", "/api/agents/broken", "", nil))
	var doc struct {
		Description struct{ Error string }
	}
	if err := json.Unmarshal(got.Body, &doc); err != nil || got.Status != http.StatusOK {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	if !strings.Contains(doc.Description.Error, "bad reply") || strings.Contains(string(got.Body), gatewaytest.Secret) {
		t.Errorf("got %s", got.Body)
	}
	b.Works(t)
}
