package attacks

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/transport"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// The secrets that attackers want.
const (
	agentToken  = "wanted-token-of-the-agent"
	callerToken = "wanted-token-of-the-caller"
	wanted      = "wanted-"
)

// thief is a server over TLS that notes all that it is sent.
type thief struct {
	*httptest.Server

	mu  sync.Mutex
	all strings.Builder
}

// steals starts a server that notes requests before it answers them; nil: it answers nothing of use.
func steals(t *testing.T, b *gatewaytest.Fixture, path string, answer http.HandlerFunc) *thief {
	t.Helper()
	s := &thief{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		_, _ = fmt.Fprintln(&s.all, r.Method, r.URL, r.Header, string(body))
		s.mu.Unlock()
		if r.Body = io.NopCloser(bytes.NewReader(body)); answer != nil {
			answer(w, r)
		}
	}))
	s.TLS = gatewaytest.Serving(b.SVID(t, path))
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *thief) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// credentialed lists an agent that is shown a token.
func credentialed(t *testing.T, b *gatewaytest.Fixture, binding, at string, c config.Credential) {
	t.Helper()
	s := b.Settings()
	s.Agents = maps.Clone(s.Agents)
	s.Agents["target"] = config.Agent{Endpoints: []config.Endpoint{{Binding: binding, URL: at}}, Credential: &c}
	gatewaytest.Must(t, b.Reload(t.Context(), s))
}

func secretIn(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	gatewaytest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func bearerOf(t *testing.T) config.Credential {
	t.Helper()
	return config.Credential{Bearer: &config.CredentialBearer{TokenFile: secretIn(t, agentToken)}}
}

// attempts calls the agent in both protocols; what it answers is all the same.
func attempts(t *testing.T, b *gatewaytest.Fixture) (answers string) {
	t.Helper()
	var answersSb85 strings.Builder
	for _, l := range []gatewaytest.HTTPRequest{
		{At: "/agents/target/a2a", Body: gatewaytest.TextBody("x"), Header: map[string]string{"A2A-Version": "1.0", "Authorization": "Bearer " + callerToken}},
		{At: "/agents/target/mcp", Body: gatewaytest.CallBody("echo", "x"), Header: gatewaytest.Mirror("tools/call", "echo")},
	} {
		got := b.Send(t, l)
		answersSb85.WriteString(fmt.Sprint(got.Header) + string(got.Body))
	}
	answers += answersSb85.String()
	return answers
}

// TestAttack_AgentRedirectsForACredential: an agent that is shown a token answers everything with a redirect to a host
// of the attacker, and to another port of its own host. Neither gets a request.
func TestAttack_AgentRedirectsForACredential(t *testing.T) {
	t.Parallel()
	for _, binding := range []string{"a2a-v1", "mcp-v1"} {
		b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
		for _, status := range []int{301, 302, 303, 307, 308, 401} {
			elsewhere := steals(t, b, "/elsewhere", nil)
			target := steals(t, b, "/target", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", elsewhere.URL+"/take")
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+elsewhere.URL+`/.well-known/oauth-protected-resource"`)
				w.WriteHeader(status)
			})
			credentialed(t, b, binding, target.URL+"/x", bearerOf(t))
			answers := attempts(t, b)
			if !strings.Contains(target.got(), agentToken) {
				t.Fatalf("%s %d: the agent itself was not shown it: %s", binding, status, answers)
			}
			if got := elsewhere.got(); got != "" {
				t.Errorf("%s %d: the other host got %s", binding, status, got)
			}
			if strings.Contains(answers+b.Logs.String(), wanted) || strings.Contains(target.got(), callerToken) {
				t.Errorf("%s %d: a token is in an answer, in a log, or the caller's at the agent", binding, status)
			}
		}
	}
}

// TestAttack_CardNamesAHostForACredential: the card of an agent that is shown a token names a host of the attacker, in
// each member that holds a URL. That host is shown no token.
func TestAttack_CardNamesAHostForACredential(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	elsewhere := steals(t, b, "/elsewhere", nil)
	card := `{"name":"target","description":"d","version":"1","url":"` + elsewhere.URL + `","preferredTransport":"JSONRPC","protocolVersion":"0.3.0",` +
		`"supportedInterfaces":[{"url":"` + elsewhere.URL + `","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"` + strings.TrimPrefix(elsewhere.URL, "https://") + `","protocolBinding":"GRPC","protocolVersion":"1.0"}],` +
		`"additionalInterfaces":[{"url":"` + elsewhere.URL + `","transport":"HTTP+JSON"}],"capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],` +
		`"securitySchemes":{"o":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"` + elsewhere.URL + `/token","scopes":{}}}}},"skills":[{"id":"echo","name":"echo","description":"d","tags":["t"]}]}`
	target := steals(t, b, "/target", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, card)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	credentialed(t, b, "a2a-v1", target.URL, bearerOf(t))
	answers := attempts(t, b)
	if !strings.Contains(target.got(), agentToken) {
		t.Fatalf("the agent itself was not shown it: %s", answers)
	}
	if strings.Contains(elsewhere.got(), wanted) || strings.Contains(answers+b.Logs.String(), wanted) {
		t.Errorf("the other host got %s", elsewhere.got())
	}
}

// TestAttack_AgentWantsTheCallersToken: where tokens are exchanged, an agent gets the one that was made for it. The
// caller's own goes to the configured token endpoint alone, a caller without one is refused, and no call of one caller
// shows what another's token was exchanged for.
func TestAttack_AgentWantsTheCallersToken(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	endpoint := steals(t, b, "/issuer", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"`+agentToken+`-`+fmt.Sprint(b.Number())+`","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":300}`)
	})
	f := &gatewaytest.Fake{Conduct: gatewaytest.Well}
	var mu sync.Mutex
	calls := map[string]bool{} // the tokens of calls
	target := steals(t, b, "/target", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Mcp-Method") == "tools/call" {
			calls[r.Header.Get("Authorization")] = true
		}
		f.SpeakMCP(w, r)
	})
	credentialed(t, b, "mcp-v1", target.URL, config.Credential{OAuth: &config.CredentialOAuth{
		TokenURL: endpoint.URL, ClientID: "gw", SecretFile: secretIn(t, "wanted-secret-of-the-gateway"), Exchange: true, Audience: []string{"target"},
	}})
	public, _, _ := b.Handlers()
	call := func(token string) string {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, b.At.Public+"/agents/target/mcp", strings.NewReader(gatewaytest.CallBody("echo", "x")))
		request.Header.Set("Content-Type", "application/json")
		for name, value := range gatewaytest.Mirror("tools/call", "echo") {
			request.Header.Set(name, value)
		}
		request = request.WithContext(transport.WithSubjectToken(request.Context(), token, "urn:ietf:params:oauth:token-type:access_token"))
		answer := httptest.NewRecorder()
		public.ServeHTTP(answer, request)
		return fmt.Sprint(answer.Code, answer.Header()) + answer.Body.String()
	}
	answers := call("")
	if n := len(calls); n != 0 {
		t.Errorf("%d calls without a token of the caller: %s", n, answers)
	}
	var answersSb191 strings.Builder
	for _, token := range []string{callerToken + "-1", callerToken + "-2", callerToken + "-1"} {
		answersSb191.WriteString(call(token))
	}
	answers += answersSb191.String()
	if len(calls) != 2 || calls[""] {
		t.Errorf("calls were made with %d tokens, want one for each of the caller's: %s", len(calls), answers)
	}
	for _, want := range []string{"subject_token=" + callerToken + "-1", "subject_token=" + callerToken + "-2", "audience=target", "token-exchange"} {
		if !strings.Contains(endpoint.got(), want) {
			t.Errorf("the token endpoint did not get %s: %s", want, endpoint.got())
		}
	}
	if strings.Contains(target.got(), callerToken) {
		t.Error("the agent got the caller's own token")
	}
	if strings.Contains(answers+b.Logs.String(), wanted) {
		t.Errorf("a token is in an answer or a log: %s", answers)
	}
}
