package attacks

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// documentsForAll lets every workload of the trust domain name documents on loopback.
func documentsForAll() config.Documents {
	return config.Documents{Hosts: []string{"127.0.0.1"}, Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/*"}}
}

// documentFor is a capability document of one agent with one endpoint.
func documentFor(id, binding, endpoint string) string {
	return `{"aepb_version":"1.0","agent_id":"spiffe://` + gatewaytest.TrustDomain + id + `","protocols":[` +
		`{"id":"` + binding + `","version":"1","endpoint":"` + endpoint + `","priority":1}],` +
		`"ect_assurance_level":"L2","lifecycle":{"status":"active","version":"1.2.3","deprecated_at":null,"sunset_at":null,"successor":null}}`
}

// ask sends a message for a destination to the translate endpoint.
func askFor(t *testing.T, b *gatewaytest.Fixture, from, dest, body string) gatewaytest.Reply {
	t.Helper()
	return b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=" + from + "&dest=" + url.QueryEscape(dest), Body: body}))
}

// TestAttack_DocumentNamesAListedAgent: finding 7. A caller who is not on the
// list of an agent names, as destination, a capability document that says this
// agent's id and endpoint. Before, the agent was called with the gateway's
// certificate, whatever its list of callers said. Now the agent's own rules hold
// as well as those for documents.
func TestAttack_DocumentNamesAListedAgent(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Documents: documentsForAll()}})
	if got := askFor(t, b, "mcp-v1", "concierge", gatewaytest.CallBody("concierge", "control")); gatewaytest.ProblemCode(t, got) != "forbidden" {
		t.Fatalf("the agent's rules let the caller in: %d %s", got.Status, got.Body)
	}
	for name, tc := range map[string]struct{ document, code string }{
		"its id and endpoint":      {documentFor("/concierge", "a2a-v1", b.Talker.URL()), "forbidden"},
		"its id, another endpoint": {documentFor("/concierge", "a2a-v1", b.Talker.URL()+"/x"), "policy_violation"},
		"this gateway":             {documentFor("/gateway-of-mine", "a2a-v1", b.At.Public+"/agents/concierge/a2a"), "policy_violation"},
	} {
		l := b.Library(t, b.SVID(t, "/library"), gatewaytest.Page(tc.document))
		got := askFor(t, b, "mcp-v1", l.URL, gatewaytest.CallBody("concierge", "attacked"))
		if gatewaytest.ProblemCode(t, got) != tc.code || strings.Contains(string(got.Body), "attacked") {
			t.Errorf("%s: %d %s, want %s", name, got.Status, got.Body, tc.code)
		}
	}
	agent, _ := b.Directory().Find("concierge")
	agent.Rules.Callers = []string{string(b.Me.ID)}
	gatewaytest.Must(t, b.Directory().Put(agent))
	l := b.Library(t, b.SVID(t, "/library"), gatewaytest.Page(documentFor("/concierge", "a2a-v1", b.Talker.URL())))
	b.Right(t, askFor(t, b, "mcp-v1", l.URL, gatewaytest.CallBody("concierge", "permitted")), "permitted")
	gatewaytest.Must(t, b.Directory().AllowDocuments(directory.Documents{Hosts: []string{"127.0.0.1"}}))
	if got := askFor(t, b, "mcp-v1", l.URL, gatewaytest.CallBody("concierge", "too")); gatewaytest.ProblemCode(t, got) != "forbidden" {
		t.Errorf("the rules for documents do not hold: %d %s", got.Status, got.Body)
	}
}

// TestAttack_DocumentUsesAListedAgentsAddress: finding 7. Egress is open to a
// private address because an operator listed an agent there. A document named
// that address, with another path and an id of the attacker's choice. Before, the
// request was sent there. Now documents use what was opened for documents alone.
func TestAttack_DocumentUsesAListedAgentsAddress(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Documents: documentsForAll()}})
	var request atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		request.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	server.TLS = gatewaytest.Serving(b.SVID(t, "/internal"))
	server.StartTLS()
	t.Cleanup(server.Close)
	gatewaytest.Must(t, b.Directory().Put(directory.Agent{Name: "internal", Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: server.URL + "/a2a"}}}))
	for name, endpoint := range map[string]string{
		"another path":  server.URL + "/of/choice",
		"another query": server.URL + "/a2a?x=y",
	} {
		l := b.Library(t, b.SVID(t, "/library"), gatewaytest.Page(documentFor("/internal", "a2a-v1", endpoint)))
		if got := askFor(t, b, "mcp-v1", l.URL, gatewaytest.CallBody("x", "y")); gatewaytest.ProblemCode(t, got) != "policy_violation" {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	if n := request.Load(); n != 0 {
		t.Errorf("the listed agent's address was asked %d times", n)
	}
}

// hook is a webhook that remembers who posted to it.
type hook struct {
	url   string
	posts chan *http.Request
}

func hookFixture(t *testing.T, b *gatewaytest.Fixture) *hook {
	t.Helper()
	h := &hook{posts: make(chan *http.Request, 64)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h.posts <- r }))
	server.TLS = gatewaytest.Serving(b.SVID(t, "/hook"))
	server.TLS.ClientAuth = tls.RequestClientCert
	server.StartTLS()
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// TestAttack_WebhookSpeaksAsTheGateway: finding 8. A caller registered a webhook
// at a server that takes the gateway's certificate for authority. Before, the
// post came with that certificate. Now no certificate is shown to webhooks, and
// Authorization is what A2A's push authentication says: one scheme, one credential.
func TestAttack_WebhookSpeaksAsTheGateway(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	entered, release := make(chan struct{}, 8), make(chan struct{})
	b.Serve(t, "slow", canonical.Binding("mcp-v1"), &gatewaytest.Fake{Conduct: gatewaytest.Delayed(entered, release)}, gatewaytest.Host{})
	h := hookFixture(t, b)
	if got := b.Hooked(t, "slow", h.url, `,"authentication":{"scheme":"Bearer","credentials":"mine"}`); got.Status != http.StatusOK || strings.Contains(string(got.Body), `"error"`) {
		t.Fatalf("%d %s", got.Status, got.Body)
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
	case <-time.After(gatewaytest.Patience):
		t.Error("the webhook was told nothing")
	}
}

// refusesHooks: a webhook and a callback at this place are refused when they are
// registered.
func refusesHooks(t *testing.T, b *gatewaytest.Fixture, name, place string) {
	t.Helper()
	got := b.Hooked(t, "calculator", place, "")
	if !strings.Contains(string(got.Body), `"error"`) || strings.Contains(string(got.Body), `"sum"`) {
		t.Errorf("%s: a webhook was taken: %d %s", name, got.Status, got.Body)
	}
	guard := b.Env.Guards.Webhooks
	if guard.Judge(place) == nil {
		t.Errorf("%s: a callback would be taken", name)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, place, http.NoBody)
	gatewaytest.Must(t, err)
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
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	for name, place := range map[string]string{
		"as it is listed":   b.Talker.URL(),
		"with another path": b.Talker.URL() + "/tasks/42:cancel?any=query",
		"another agent":     b.Tools.URL(),
	} {
		refusesHooks(t, b, name, place)
	}
	afterAll(t, b, strings.Replace(b.Talker.URL(), "127.0.0.1", "localhost", 1))
	b.Works(t)
}

// afterAll: a name that is none of those listed, but leads to the address of
// one, is refused when it is posted to.
func afterAll(t *testing.T, b *gatewaytest.Fixture, place string) {
	t.Helper()
	guard := b.Env.Guards.Webhooks
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, place, http.NoBody)
	gatewaytest.Must(t, err)
	if response, err := guard.Tell(request, "spiffe://example.org/eve", ""); err == nil {
		_ = response.Body.Close()
		t.Errorf("%s was posted to", place)
	}
}

// TestAttack_WebhookToOurselves: finding 8. The same with the gateway's own listeners.
func TestAttack_WebhookToOurselves(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	for name, place := range map[string]string{
		"public":                       b.At.Public + "/agents/calculator/a2a",
		"admin":                        b.At.Admin + "/api/agents",
		"grpc":                         "https://" + b.RPC + "/",
		"uacp":                         "https://" + strings.TrimPrefix(b.At.UACP, "uacps://") + "/",
		"another name of this machine": strings.Replace(b.At.Public, "127.0.0.1", "localhost", 1) + "/",
	} {
		refusesHooks(t, b, name, place)
	}
	b.Works(t)
}
