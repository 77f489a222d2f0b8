package main

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// documentsForAll lets every workload of the trust domain name documents on loopback.
func documentsForAll() config.Documents {
	return config.Documents{Hosts: []string{"127.0.0.1"}, Callers: []string{"spiffe://" + devTrustDomain + "/*"}}
}

// documentFor is a capability document of one agent with one endpoint.
func documentFor(id, binding, endpoint string) string {
	return `{"aepb_version":"1.0","agent_id":"spiffe://` + devTrustDomain + id + `","protocols":[` +
		`{"id":"` + binding + `","version":"1","endpoint":"` + endpoint + `","priority":1}],` +
		`"ect_assurance_level":"L2","lifecycle":{"status":"active","version":"1.2.3","deprecated_at":null,"sunset_at":null,"successor":null}}`
}

// ask sends a message for a destination to the translate endpoint.
func (b *bed) askFor(t *testing.T, from, dest, body string) reply {
	t.Helper()
	return b.send(t, b.sealed(t, letter{at: "/aepb/translate?from=" + from + "&dest=" + url.QueryEscape(dest), body: body}))
}

// TestAttack_DocumentNamesAListedAgent: finding 7. A caller who is not on the
// list of an agent names, as destination, a capability document that says this
// agent's id and endpoint. Before, the agent was called with the gateway's
// certificate, whatever its list of callers said. Now the agent's own rules hold
// as well as those for documents.
func TestAttack_DocumentNamesAListedAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, config: config.Config{Documents: documentsForAll()}})
	if got := b.askFor(t, "mcp-v1", "concierge", callBody("concierge", "control")); problemCode(t, got) != "forbidden" {
		t.Fatalf("the agent's rules let the caller in: %d %s", got.status, got.body)
	}
	for name, tc := range map[string]struct{ document, code string }{
		"its id and endpoint":      {documentFor("/concierge", "a2a-v1", b.talker.URL()), "forbidden"},
		"its id, another endpoint": {documentFor("/concierge", "a2a-v1", b.talker.URL()+"/x"), "policy_violation"},
		"this gateway":             {documentFor("/gateway-of-mine", "a2a-v1", b.at.Public+"/agents/concierge/a2a"), "policy_violation"},
	} {
		l := b.library(t, b.svid(t, "/library"), page(tc.document))
		got := b.askFor(t, "mcp-v1", l.url, callBody("concierge", "attacked"))
		if problemCode(t, got) != tc.code || strings.Contains(string(got.body), "attacked") {
			t.Errorf("%s: %d %s, want %s", name, got.status, got.body, tc.code)
		}
	}
	agent, _ := b.directory.Find("concierge")
	agent.Rules.Callers = []string{string(b.me.ID)}
	must(t, b.directory.Put(agent))
	l := b.library(t, b.svid(t, "/library"), page(documentFor("/concierge", "a2a-v1", b.talker.URL())))
	b.right(t, b.askFor(t, "mcp-v1", l.url, callBody("concierge", "permitted")), "permitted")
	must(t, b.directory.AllowDocuments(directory.Documents{Hosts: []string{"127.0.0.1"}}))
	if got := b.askFor(t, "mcp-v1", l.url, callBody("concierge", "too")); problemCode(t, got) != "forbidden" {
		t.Errorf("the rules for documents do not hold: %d %s", got.status, got.body)
	}
}

// TestAttack_DocumentUsesAListedAgentsAddress: finding 7. Egress is open to a
// private address because an operator listed an agent there. A document named
// that address, with another path and an id of the attacker's choice. Before, the
// request was sent there. Now documents use what was opened for documents alone.
func TestAttack_DocumentUsesAListedAgentsAddress(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, config: config.Config{Documents: documentsForAll()}})
	var asked atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	server.TLS = serving(b.svid(t, "/internal"))
	server.StartTLS()
	t.Cleanup(server.Close)
	must(t, b.directory.Put(directory.Agent{Name: "internal", Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: server.URL + "/a2a"}}}))
	for name, endpoint := range map[string]string{
		"another path":  server.URL + "/of/choice",
		"another query": server.URL + "/a2a?x=y",
	} {
		l := b.library(t, b.svid(t, "/library"), page(documentFor("/internal", "a2a-v1", endpoint)))
		if got := b.askFor(t, "mcp-v1", l.url, callBody("x", "y")); problemCode(t, got) != "policy_violation" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the listed agent's address was asked %d times", n)
	}
}

// hook is a webhook that remembers who posted to it.
type hook struct {
	url   string
	posts chan *http.Request
}

func (b *bed) hook(t *testing.T) *hook {
	t.Helper()
	h := &hook{posts: make(chan *http.Request, 64)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h.posts <- r }))
	server.TLS = serving(b.svid(t, "/hook"))
	server.TLS.ClientAuth = tls.RequestClientCert
	server.StartTLS()
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// hooked has an agent do something that takes a while, of which a webhook is told.
func (b *bed) hooked(t *testing.T, agent, hook, more string) reply {
	t.Helper()
	body := strings.Replace(addBody(b.number()), `"params":{`, `"params":{"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"`+hook+`"`+more+`}},`, 1)
	return b.send(t, letter{at: "/agents/" + agent + "/a2a", body: body, header: map[string]string{"A2A-Version": "1.0"}})
}

// TestAttack_WebhookSpeaksAsTheGateway: finding 8. A caller registered a webhook
// at a server that takes the gateway's certificate for authority. Before, the
// post came with that certificate. Now no certificate is shown to webhooks, and
// Authorization is what A2A's push authentication says: one scheme, one credential.
func TestAttack_WebhookSpeaksAsTheGateway(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	entered, release := make(chan struct{}, 8), make(chan struct{})
	b.serve(t, "slow", canonical.Binding("mcp-v1"), &fake{conduct: held(entered, release)}, host{})
	h := b.hook(t)
	if got := b.hooked(t, "slow", h.url, `,"authentication":{"scheme":"Bearer","credentials":"mine"}`); got.status != http.StatusOK || strings.Contains(string(got.body), `"error"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	<-entered
	close(release)
	select {
	case r := <-h.posts:
		if len(r.TLS.PeerCertificates) != 0 {
			t.Errorf("the webhook was shown the certificate of %v", r.TLS.PeerCertificates[0].URIs)
		}
		if r.Header.Get("Authorization") != "Bearer mine" {
			t.Errorf("push authentication is %q", r.Header.Get("Authorization"))
		}
	case <-time.After(patience):
		t.Error("the webhook was told nothing")
	}
}

// refusesHooks: a webhook and a callback at this place are refused when they are
// registered.
func (b *bed) refusesHooks(t *testing.T, name, place string) {
	t.Helper()
	got := b.hooked(t, "calculator", place, "")
	if !strings.Contains(string(got.body), `"error"`) || strings.Contains(string(got.body), `"sum"`) {
		t.Errorf("%s: a webhook was taken: %d %s", name, got.status, got.body)
	}
	guard, err := b.webhooks()
	must(t, err)
	if guard.Judge(place) == nil {
		t.Errorf("%s: a callback would be taken", name)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, place, http.NoBody)
	must(t, err)
	if response, err := guard.Tell(request, "spiffe://example.org/eve", ""); err == nil {
		_ = response.Body.Close()
		t.Errorf("%s: a post was sent", name)
	}
}

// TestAttack_WebhookToAListedAgent: finding 8. A caller registers the address of
// a listed agent, which takes the gateway for an authority, as webhook. Before,
// it was posted there. Now it is refused at registration, and once more at each post.
func TestAttack_WebhookToAListedAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	for name, place := range map[string]string{
		"as it is listed":   b.talker.URL(),
		"with another path": b.talker.URL() + "/tasks/42:cancel?any=query",
		"another agent":     b.tools.URL(),
	} {
		b.refusesHooks(t, name, place)
	}
	b.afterAll(t, strings.Replace(b.talker.URL(), "127.0.0.1", "localhost", 1))
	b.works(t)
}

// afterAll: a name that is none of those listed, but leads to the address of
// one, is refused when it is posted to.
func (b *bed) afterAll(t *testing.T, place string) {
	t.Helper()
	guard, err := b.webhooks()
	must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, place, http.NoBody)
	must(t, err)
	if response, err := guard.Tell(request, "spiffe://example.org/eve", ""); err == nil {
		_ = response.Body.Close()
		t.Errorf("%s was posted to", place)
	}
}

// TestAttack_WebhookToOurselves: finding 8. The same with the gateway's own listeners.
func TestAttack_WebhookToOurselves(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	for name, place := range map[string]string{
		"public":                       b.at.Public + "/agents/calculator/a2a",
		"admin":                        b.at.Admin + "/api/agents",
		"grpc":                         "https://" + b.rpc + "/",
		"uacp":                         "https://" + strings.TrimPrefix(b.at.UACP, "uacps://") + "/",
		"another name of this machine": strings.Replace(b.at.Public, "127.0.0.1", "localhost", 1) + "/",
	} {
		b.refusesHooks(t, name, place)
	}
	b.works(t)
}

// TestAttack_DevOnAPublicAddress: finding 18. A development gateway was started
// on an address that other machines reach, where it lets callers in without
// credentials. Before, it listened. Now it says that this wants --insecure-public.
func TestAttack_DevOnAPublicAddress(t *testing.T) {
	t.Parallel()
	const here = "127.0.0.1:0"
	grpc := filepath.Join(t.TempDir(), "grpc.yaml")
	must(t, os.WriteFile(grpc, []byte("listen: {grpc: ':0'}\n"), 0o600))
	metrics := filepath.Join(t.TempDir(), "metrics.yaml")
	must(t, os.WriteFile(metrics, []byte("listen: {metrics: '0.0.0.0:0'}\n"), 0o600))
	for name, tc := range map[string]struct {
		flags devFlags
		want  string // in the error; empty: it runs
	}{
		"this machine alone": {devFlags{addr: "localhost:0", adminAddr: "127.0.0.2:0", uacpAddr: here}, ""},
		"public":             {devFlags{addr: "0.0.0.0:0", adminAddr: here, uacpAddr: here}, "--addr"},
		"every address":      {devFlags{addr: ":0", adminAddr: here, uacpAddr: here}, "--addr"},
		"admin":              {devFlags{addr: here, adminAddr: "[::]:0", uacpAddr: here}, "--admin-addr"},
		"uacp":               {devFlags{addr: here, adminAddr: here, uacpAddr: "0.0.0.0:0"}, "--uacp-addr"},
		"grpc":               {devFlags{addr: here, adminAddr: here, uacpAddr: here, config: grpc}, "listen.grpc"},
		"metrics":            {devFlags{addr: here, adminAddr: here, uacpAddr: here, config: metrics}, "listen.metrics"},
		"on purpose":         {devFlags{addr: "0.0.0.0:0", adminAddr: here, uacpAddr: here, insecurePublic: true}, ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tc.flags.dir = t.TempDir()
		err := dev(ctx, tc.flags, io.Discard, io.Discard)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want+" is no loopback address")) {
			t.Errorf("%s: %v", name, err)
		}
		if made, err := os.ReadDir(tc.flags.dir); tc.want != "" && (err != nil || len(made) != 0) {
			t.Errorf("%s: it made %v, %v", name, made, err)
		}
	}
}
