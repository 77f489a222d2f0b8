// Package embed shows how a program runs a gateway in its own process, with the exported packages alone.
package embed

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBuild_OneAgent: a program runs a gateway with one agent, an MCP server, and calls it as if it were an A2A agent.
// The trust bundle alone verifies what the gateway signed.
func TestBuild_OneAgent(t *testing.T) {
	dev, svid := identities(t)
	tools, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: serving(svid)}, Stateless: true, Tools: []string{"add"}})
	must(t, err)
	t.Cleanup(func() { must(t, tools.Stop(context.WithoutCancel(t.Context()))) })
	public := start(t, dev, "sums", config.Agent{ID: string(svid.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: tools.URL()}}})
	answer, tokens := post(t, dev, public+"/agents/sums/a2a", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{
		"messageId":"m","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":2,"b":3}}}]}}}`)
	if !strings.Contains(answer, `"sum":5`) {
		t.Errorf("the answer is %s", answer)
	}
	verify(t, dev, tokens)
}

// TestBuild_ProtocolOfAnotherModule: the same with a protocol that is not the gateway's own. Its codec, its dialer and
// its HTTP server are in package gatewaytest, which uses exported packages alone.
func TestBuild_ProtocolOfAnotherModule(t *testing.T) {
	dev, svid := identities(t)
	agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":1,"said":"good day to you"}`)
	}))
	agent.TLS = serving(svid)
	agent.StartTLS()
	t.Cleanup(agent.Close)
	listed := config.Agent{ID: string(svid.ID), Endpoints: []config.Endpoint{{Binding: string(gatewaytest.ToyBinding), URL: agent.URL}}}
	public := start(t, dev, "toy", listed, gatewaytest.SpeakToy)
	for path, message := range map[string]string{
		"/agents/toy/toy": `{"id":1,"say":"good day"}`,
		"/agents/toy/a2a": `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"good day"}]}}}`,
	} {
		answer, tokens := post(t, dev, public+path, message)
		if !strings.Contains(answer, "good day to you") {
			t.Errorf("%s: the answer is %s", path, answer)
		}
		verify(t, dev, tokens)
	}
}

// identities makes a certificate authority, the certificates of a gateway and of a client, and that of an agent.
func identities(t *testing.T) (*identity.Development, *identity.SVID) {
	t.Helper()
	dev, err := identity.LoadOrCreate(t.TempDir(), "example.test", time.Now)
	must(t, err)
	agent, err := dev.Authority.Issue("/agent", identity.SVIDRequest{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	must(t, err)
	return dev, agent
}

// start runs a gateway with one agent until the test ends, and returns where callers reach it.
func start(t *testing.T, dev *identity.Development, name string, agent config.Agent, also ...server.Factory) (public string) {
	t.Helper()
	sockets, err := server.Listen(config.Listen{Public: "127.0.0.1:0", Admin: "127.0.0.1:0"})
	must(t, err)
	conf, err := server.Development(server.DevelopmentDeps{
		Material: dev, Settings: config.Config{Agents: map[string]config.Agent{name: agent}}, Sockets: sockets, Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	conf.Factories = also
	gateway, err := server.Build(conf)
	must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- gateway.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	return sockets.Addresses().Public
}

// post sends a message with the client's certificate, and returns the answer and the tokens that came with it.
func post(t *testing.T, dev *identity.Development, url, message string) (answer string, tokens []string) {
	t.Helper()
	source, err := identity.NewSource(dev.Client, dev.Bundle)
	must(t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: source.ClientConfig("")}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(message))
	must(t, err)
	request.Header = http.Header{"Content-Type": {"application/json"}, "A2a-Version": {"1.0"}}
	response, err := client.Do(request)
	must(t, err)
	defer func() { must(t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return string(body), response.Header.Values(ect.HeaderName)
}

// verify demands a signed token of the request and one of the reply, which names the other as its parent.
func verify(t *testing.T, dev *identity.Development, tokens []string) {
	t.Helper()
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: dev.Bundle})
	must(t, err)
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: keys})
	must(t, err)
	var verified []ect.Claims
	for _, token := range tokens {
		v, err := verifier.Verify(t.Context(), token, ect.Check{Purpose: ect.Parent})
		must(t, err)
		verified = append(verified, v.Claims())
	}
	if len(verified) != 2 || len(verified[1].Parents) == 0 || verified[1].Parents[0] != verified[0].ID {
		t.Errorf("the tokens are %+v", verified)
	}
}

func serving(s *identity.SVID) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{s.Certificate()}, MinVersion: tls.VersionTLS13}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
