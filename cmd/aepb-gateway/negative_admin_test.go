package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// operator is a request to the admin listener with the operator's token. value
// overrides a header field; "": without it.
func (b *bed) operator(method, path, body string, header map[string]string) letter {
	l := letter{via: b.anonymous, method: method, at: b.at.Admin + path, body: body, header: map[string]string{
		"Authorization": "Bearer " + b.adminToken,
	}}
	for name, value := range header {
		if l.header[name] = value; value == "" {
			delete(l.header, name)
		}
	}
	return l
}

// Who is no operator (R17).
func TestAdminRefusesStrangers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	unknown := want{status: 401, code: "unauthenticated", header: challenge}
	foreign := want{status: 403, code: "forbidden"}
	list := func(name string, header map[string]string, w want) refusal {
		return sent(name, b.operator("GET", "/api/agents", "", header), w)
	}
	with := func(name, value string) map[string]string { return map[string]string{name: value} }
	named := func(name, host string, w want) refusal {
		l := b.operator("GET", "/api/agents", "", nil)
		l.host = host
		return sent(name, l, w)
	}
	admin, err := url.Parse(b.at.Admin)
	must(t, err)
	cases := []refusal{
		list("no token", with("Authorization", ""), unknown),
		list("wrong token", with("Authorization", "Bearer the-operators-own-token-26-y"), unknown),
		list("the beginning of the token", with("Authorization", "Bearer "+b.adminToken[:20]), unknown),
		list("the token and more", with("Authorization", "Bearer "+b.adminToken+"x"), unknown),
		list("the token in another scheme", with("Authorization", "Basic "+b.adminToken), unknown),
		list("the token without a scheme", with("Authorization", b.adminToken), unknown),
		list("an empty token", with("Authorization", "Bearer "), unknown),
		list("the token in a cookie", map[string]string{"Authorization": "", "Cookie": "token=" + b.adminToken}, unknown),
		sent("the token in the query", b.operator("GET", "/api/agents?token="+b.adminToken, "", with("Authorization", "")), unknown),
		sent("no token, to add", b.operator("POST", "/api/agents", agentJSON("a", "mcp-v1", "https://a.example"), with("Authorization", "")), unknown),
		sent("no token, to remove", b.operator("DELETE", "/api/agents/calculator", "", with("Authorization", "")), unknown),
		sent("no token, to look", b.operator("GET", "/api/agents/calculator", "", with("Authorization", "")), unknown),
		{name: "a certificate instead of a token", want: unknown, make: func(_ *testing.T, b *bed) letter {
			l := b.operator("GET", "/api/agents", "", with("Authorization", ""))
			l.via = b.client
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
		list("Origin of the public listener", with("Origin", b.at.Public), foreign),
		sent("foreign Origin at the metrics", b.operator("GET", "/metrics", "", with("Origin", "https://evil.example")), foreign),
		sent("foreign Origin, no token", b.operator("GET", "/api/agents", "", map[string]string{"Origin": "https://evil.example", "Authorization": ""}), foreign),
	}
	refusals(t, b, cases)
	t.Run("the operator is let in", func(t *testing.T) {
		for _, header := range []map[string]string{nil, with("Origin", b.at.Admin), with("Authorization", "bearer "+b.adminToken)} {
			if got := b.send(t, b.operator("GET", "/api/agents", "", header)); got.status != http.StatusOK || !strings.Contains(string(got.body), `"calculator"`) {
				t.Errorf("%v: got %d: %s", header, got.status, got.body)
			}
		}
	})
}

// agentJSON is an agent document with one endpoint.
func agentJSON(name, binding, at string) string {
	text, _ := json.Marshal(map[string]any{"name": name, "endpoints": []map[string]string{{"binding": binding, "url": at}}})
	return string(text)
}

// What an operator cannot have meant.
func TestAdminRefusesDocuments(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	bad := func(reason string) want { return want{status: 400, code: "malformed_message", reason: reason} }
	put := func(name, document string, w want) refusal {
		return sent(name, b.operator("POST", "/api/agents", document, nil), w)
	}
	at := func(name, address string, w want) refusal { return put(name, agentJSON("a", "mcp-v1", address), w) }
	named := func(name string) refusal {
		return put("name "+strconv.Quote(name), agentJSON(name, "mcp-v1", "https://a.example"), bad("a name is"))
	}
	good := agentJSON("a", "mcp-v1", "https://a.example")
	noDocument := bad("no agent document")
	insecure := bad("must be an https URL")
	noMethod := func(allow string) want {
		return want{status: 405, code: "method_not_allowed", header: map[string]string{"Allow": allow}}
	}
	unknown := want{status: 404, code: "unknown_agent"}
	refusals(t, b, []refusal{
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
		put("no endpoints", `{"name":"a"}`, bad("at least one endpoint")),
		put("no endpoint in the list", `{"name":"a","endpoints":[]}`, bad("at least one endpoint")),
		put("unknown protocol", agentJSON("a", "soap-v1", "https://a.example"), bad("does not speak soap-v1")),
		put("two endpoints of one protocol", `{"name":"a","endpoints":[{"binding":"mcp-v1","url":"https://a.example"},{"binding":"mcp-v1","url":"https://b.example"}]}`, bad("two endpoints for mcp-v1")),
		put("a caller that is no SPIFFE id", strings.Replace(good, `"name"`, `"callers":["alice"],"name"`, 1), bad("not a SPIFFE id")),
		put("a caller with a wildcard within", strings.Replace(good, `"name"`, `"callers":["spiffe://aepb.dev/*/x"],"name"`, 1), bad("the only wildcard")),
		put("a whole trust domain as one caller", strings.Replace(good, `"name"`, `"callers":["spiffe://aepb.dev"],"name"`, 1), bad("a trust domain is no caller")),
		put("an identity that is none", strings.Replace(good, `"name"`, `"id":"alice","name"`, 1), bad("SPIFFE id")),
		put("an identity that is a whole trust domain", strings.Replace(good, `"name"`, `"id":"spiffe://aepb.dev","name"`, 1), bad("SPIFFE id")),
		named(""),
		named("A"),
		named("-a"),
		named("a/b"),
		named("../a"),
		named("a b"),
		named("ä"),
		named(strings.Repeat("a", 64)),
		at("http outside loopback", "http://a.example/mcp", insecure),
		at("http to a private address", "http://10.0.0.1/mcp", insecure),
		at("http to a name that begins like loopback", "http://localhost.example/mcp", insecure),
		at("http to a name that looks like an address", "http://127.0.0.1.example/mcp", insecure),
		at("another scheme", "ftp://a.example", insecure),
		at("a file", "file:///etc/passwd", bad("not an absolute URL")),
		at("a path", "/mcp", bad("not an absolute URL")),
		at("no address", "", bad("not an absolute URL")),
		at("opaque", "https:a.example", bad("not an absolute URL")),
		at("a line break", "https://a.example/\r\nX: y", bad("not an absolute URL")),
		at("credentials", "https://user:"+secret+"@a.example", bad("must not hold credentials")),
		at("a fragment", "https://a.example/#x", bad("must not have a fragment")),
		put("64 KiB and one byte", good+strings.Repeat(" ", 64<<10), want{status: 413, code: "too_large"}),
		sent("show an agent that there is not", b.operator("GET", "/api/agents/nobody", "", nil), unknown),
		sent("remove an agent that there is not", b.operator("DELETE", "/api/agents/nobody", "", nil), unknown),
		sent("PUT the list", b.operator("PUT", "/api/agents", good, nil), noMethod("GET, POST")),
		sent("POST an agent", b.operator("POST", "/api/agents/calculator", good, nil), noMethod("GET, DELETE")),
		sent("POST the metrics", b.operator("POST", "/metrics", "", nil), noMethod("GET")),
		sent("nothing there", b.operator("GET", "/api/nothing", "", nil), want{status: 404, code: "not_found"}),
		sent("the public surface on the admin listener", b.operator("POST", "/aepb/translate?from=a2a-v1&dest=calculator", addBody(1), nil), want{status: 404, code: "not_found"}),
	})
	t.Run("nothing of it was listed", func(t *testing.T) {
		if got := b.send(t, b.operator("GET", "/api/agents", "", nil)); strings.Contains(string(got.body), ".example") {
			t.Errorf("listed: %s", got.body)
		}
	})
	t.Run("plain HTTP to loopback is for dev alone", plainLoopback)
}

// plainLoopback: what dev lets an operator list, serve refuses, from the file
// and from the admin API alike.
func plainLoopback(t *testing.T) {
	document := agentJSON("plain", "mcp-v1", "http://127.0.0.1:1/mcp")
	dev := newBed(t, plan{})
	if got := dev.send(t, dev.operator("POST", "/api/agents", document, nil)); got.status != http.StatusCreated {
		t.Errorf("dev: got %d: %s", got.status, got.body)
	}
	serve := newBed(t, plan{serve: true})
	l := serve.operator("POST", "/api/agents", document, nil)
	serve.refused(t, l, serve.send(t, l), want{status: 400, code: "malformed_message", reason: "must be an https URL"})
}

// A listed agent that cannot be described says why, and not how.
func TestAdminShowsFailures(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.serve(t, "broken", "mcp-v1", &fake{conduct: well, silly: calling(500, "text/html", secret)}, host{timeout: 5 * time.Second})
	got := b.send(t, b.operator("GET", "/api/agents/broken", "", nil))
	var doc struct {
		Description struct{ Error string }
	}
	if err := json.Unmarshal(got.body, &doc); err != nil || got.status != http.StatusOK {
		t.Fatalf("got %d: %s", got.status, got.body)
	}
	if !strings.Contains(doc.Description.Error, "bad reply") || strings.Contains(string(got.body), secret) {
		t.Errorf("got %s", got.body)
	}
	b.works(t)
}
