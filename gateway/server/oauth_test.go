package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity/oauth/oauthtest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// issuerOf is an authorization server whose certificate the gateway trusts that is made with its URL.
func issuerOf(t *testing.T, made func(url string) *gatewaytest.Fixture) (*gatewaytest.Fixture, *oauthtest.Server) {
	t.Helper()
	var certificate atomic.Pointer[tls.Certificate]
	s := oauthtest.Start(t, func() tls.Certificate { return *certificate.Load() })
	b := made(s.URL)
	certificate.Store(new(b.SVID(t, "/authorization-server").Certificate()))
	return b, s
}

// TestOAuth_Reload: issuers are added, changed and removed, and the secret of the gateway at one changes, while the gateway
// runs. A section with a mistake changes nothing. A call that is under way goes on.
func TestOAuth_Reload(t *testing.T) {
	t.Parallel()
	b, s := issuerOf(t, func(string) *gatewaytest.Fixture { return gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true}) })
	reached, goOn := make(chan struct{}), make(chan struct{})
	slow := front(t, b, b.Tools.URL(), func(r *http.Request) bool {
		if r.Method == http.MethodPost && r.Header.Get("Mcp-Method") != "initialize" {
			select {
			case reached <- struct{}{}:
				<-goOn
			default:
			}
		}
		return true
	})
	c := gatewaytest.OnFiles(b)
	c.Agents = maps.Clone(c.Agents)
	c.Agents["slow"] = overMCP(slow.URL, nil)
	secret := filepath.Join(t.TempDir(), "secret")
	gatewaytest.Must(t, os.WriteFile(secret, []byte("another"), 0o600))
	issuer := config.OAuthIssuer{
		Issuer: s.URL, Identities: []config.OAuthIdentity{{Path: "users/{sub}"}},
		Introspection: config.OAuthIntrospection{URL: s.URL + oauthtest.Introspect, ClientID: oauthtest.ClientID, SecretFile: secret},
	}
	with := func(change func(*config.OAuthIssuer)) config.Config {
		next, in := c, issuer
		if change != nil {
			change(&in)
		}
		next.OAuth = map[string]config.OAuthIssuer{"corp": in}
		return next
	}
	call := func(agent, token string) gatewaytest.Reply {
		header := map[string]string{"Authorization": "Bearer " + token}
		return b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/" + agent + "/a2a", Header: header, Body: gatewaytest.AddBody(b.Number())})
	}
	token := func(agent string) string { return s.Token(b.At.Public+"/agents/"+agent+"/a2a", nil) }
	want := func(what, token string, status int) {
		t.Helper()
		if got := call("members", token); got.Status != status {
			t.Errorf("%s: got %d %s, want %d", what, got.Status, got.Body, status)
		}
	}
	metadata := func(what string, status int) {
		t.Helper()
		at := gatewaytest.HTTPRequest{Via: b.Anonymous, Method: http.MethodGet, At: "/.well-known/oauth-protected-resource/agents/members/mcp"}
		if got := b.Send(t, at); got.Status != status {
			t.Errorf("metadata %s: got %d %s, want %d", what, got.Status, got.Body, status)
		}
	}
	reserved := b.Caller(t, b.SVID(t, "/oauth/corp/users/alice"))
	certificate := func(what string, status int) {
		t.Helper()
		got := b.Send(t, gatewaytest.HTTPRequest{Via: reserved, At: "/agents/members/a2a", Body: gatewaytest.AddBody(b.Number())})
		if got.Status != status {
			t.Errorf("a certificate with an id of tokens, %s: got %d %s, want %d", what, got.Status, got.Body, status)
		}
	}

	metadata("without issuers", http.StatusNotFound)
	certificate("without issuers", http.StatusOK)
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	want("no issuer", token("members"), http.StatusUnauthorized)

	gatewaytest.Must(t, b.Reload(t.Context(), with(nil)))
	want("an issuer was added", token("members"), http.StatusOK)
	metadata("of an issuer", http.StatusOK)
	certificate("with issuers", http.StatusBadRequest)

	gatewaytest.Must(t, b.Reload(t.Context(), with(func(i *config.OAuthIssuer) { i.Scopes = map[string]config.Patterns{"admin": {"*"}} })))
	want("no scope permits it", token("members"), http.StatusForbidden)
	gatewaytest.Must(t, b.Reload(t.Context(), with(func(i *config.OAuthIssuer) { i.Identities = []config.OAuthIdentity{{Path: "people/{sub}"}} })))
	want("other rules", token("members"), http.StatusOK)
	if got := s.Requests(oauthtest.Keys); got != 1 {
		t.Errorf("%d requests for keys, want one", got)
	}

	for what, bad := range map[string]func(*config.OAuthIssuer){
		"no rules":      func(i *config.OAuthIssuer) { i.Identities = nil },
		"http":          func(i *config.OAuthIssuer) { i.Issuer = "http://login.example.com" },
		"no such file":  func(i *config.OAuthIssuer) { i.Introspection.SecretFile += "-not" },
		"age of a week": func(i *config.OAuthIssuer) { i.MaxKeyAge = 1 },
	} {
		if err := b.Reload(t.Context(), with(bad)); err == nil {
			t.Errorf("%s: is taken", what)
		}
		want("beside "+what, token("members"), http.StatusOK)
	}

	conf := filepath.Join(t.TempDir(), "c.json")
	written, err := json.Marshal(map[string]any{"oauth": map[string]any{"corp": map[string]any{
		"issuer": s.URL, "identities": []any{map[string]string{"path": "users/{sub}"}},
		"introspection": map[string]string{"url": s.URL + oauthtest.Introspect, "client_id": oauthtest.ClientID, "client_secret_file": secret},
	}}})
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, os.WriteFile(conf, written, 0o600))
	from, err := server.ReadFile(conf)
	gatewaytest.Must(t, err)
	w := server.WatcherOf(b.Server, from)
	inFile := with(nil)
	w.SetApply(func(ctx context.Context, _ config.Config) error { return b.Reload(ctx, inFile) })
	s.Opaque("opaque", s.Claims(b.At.Public+"/agents/members/a2a"))
	want("the secret is another", "opaque", http.StatusServiceUnavailable)
	gatewaytest.Must(t, os.WriteFile(secret, nil, 0o600))
	gatewaytest.PutSVID(t, b, b.SVID(t, "/gateway"))
	before := gatewaytest.Shown(t, b)
	if refused := w.Look(t.Context()); !refused || gatewaytest.Shown(t, b) == before {
		t.Errorf("a new SVID beside an empty secret: refused %t, and it is not shown", refused)
	}
	want("beside an empty secret", token("members"), http.StatusOK)
	inFile.PublicURL = ""
	gatewaytest.Must(t, os.WriteFile(secret, []byte(oauthtest.Secret), 0o600))
	if refused := w.Look(t.Context()); !refused {
		t.Error("a mistake in the configuration is taken")
	}
	want("the secret is right, beside a mistake elsewhere", "opaque", http.StatusOK)

	done := make(chan gatewaytest.Reply, 1)
	waiting := token("slow")
	var calls sync.WaitGroup
	calls.Go(func() { done <- call("slow", waiting) })
	t.Cleanup(calls.Wait)
	select {
	case <-reached:
	case got := <-done:
		t.Fatalf("the call before the issuer is removed: got %d %s", got.Status, got.Body)
	}
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	want("the issuer was removed", token("members"), http.StatusUnauthorized)
	metadata("of a removed issuer", http.StatusNotFound)
	certificate("without issuers again", http.StatusOK)
	close(goOn)
	if got := <-done; got.Status != http.StatusOK {
		t.Errorf("the call that was under way: got %d %s", got.Status, got.Body)
	}
	if got := fmt.Sprint(b.Logs.Lines("opaque"), b.Logs.Lines(oauthtest.Secret)); got != "[] []" {
		t.Errorf("the log has a secret: %s", got)
	}
}

// shownOpaque is the access token of a caller.
const shownOpaque = shownSecrets + "caller-7788"

// TestOAuth_Exchange: a caller's access token goes to the token endpoint of an agent with exchange, and what that gives goes to
// the agent. The token itself is nowhere else. A caller by certificate is refused before anything is sent.
func TestOAuth_Exchange(t *testing.T) {
	t.Parallel()
	p := withState(t)
	b, s := issuerOf(t, func(url string) *gatewaytest.Fixture {
		p.Serve = true
		p.Config.OAuth = map[string]config.OAuthIssuer{"corp": {
			Issuer: url, Identities: []config.OAuthIdentity{{Path: "users/{sub}"}},
			Introspection: config.OAuthIntrospection{URL: url + oauthtest.Introspect, ClientID: oauthtest.ClientID, SecretFile: secretFile(t, oauthtest.Secret)},
		}}
		return gatewaytest.NewFixture(t, p)
	})
	endpoint := issuer(t, b, func(*http.Request) error { return nil })
	var shown sync.Map
	agent := front(t, b, b.Tools.URL(), func(r *http.Request) bool {
		shown.Store(r.Header.Get("Authorization"), true)
		return strings.HasPrefix(r.Header.Get("Authorization"), "Bearer "+shownToken)
	})
	c := gatewaytest.OnFiles(b)
	c.Agents = maps.Clone(c.Agents)
	c.Agents["shown"] = overMCP(agent.URL, &config.Credential{OAuth: &config.CredentialOAuth{
		TokenURL: endpoint.URL, ClientID: "gw", SecretFile: secretFile(t, shownClient), Exchange: true,
	}})
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	at := b.At.Public + "/agents/shown/a2a"
	jwt := s.Token(at, func(_, c oauthtest.Object) { c["sub"] = "bob" })
	s.Opaque(shownOpaque, s.Claims(at))
	call := func(via *http.Client, header map[string]string) gatewaytest.Reply {
		return b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/shown/a2a", Header: header, Body: gatewaytest.AddBody(b.Number())})
	}
	var answers []gatewaytest.Reply
	for _, token := range []string{shownOpaque, jwt} {
		got := call(b.Anonymous, map[string]string{"Authorization": "Bearer " + token})
		if got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"sum":`) {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
		answers = append(answers, got)
	}
	before := agent.taken.Load() + agent.refused.Load()
	byCertificate := call(b.Client, nil)
	if byCertificate.Status != http.StatusForbidden || !strings.Contains(string(byCertificate.Body), "has shown no OAuth token") || agent.taken.Load()+agent.refused.Load() != before {
		t.Errorf("a caller by certificate: got %d %s", byCertificate.Status, byCertificate.Body)
	}
	exchanged := map[string]string{}
	for _, form := range endpoint.forms {
		if form.Get("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange" {
			exchanged[form.Get("subject_token")] = form.Get("subject_token_type")
		}
	}
	const access = "urn:ietf:params:oauth:token-type:access_token"
	if want := map[string]string{shownOpaque: access, jwt: access}; !maps.Equal(exchanged, want) {
		t.Errorf("the token endpoint got %v, want %v", exchanged, want)
	}
	shown.Range(func(value, _ any) bool {
		if !strings.HasPrefix(value.(string), "Bearer "+shownToken) {
			t.Errorf("the agent was shown %q", value)
		}
		return true
	})
	quiet(t, b, append(answers, byCertificate)...)
	written := wrote(t, b)
	files, err := filepath.Glob(p.Config.State.Path + "*")
	gatewaytest.Must(t, err)
	var writtenSb242 strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		gatewaytest.Must(t, err)
		writtenSb242.WriteString(string(text))
	}
	written += writtenSb242.String()
	var writtenSb247 strings.Builder
	for _, got := range answers {
		writtenSb247.WriteString(fmt.Sprint(got.Header) + string(got.Body))
	}
	written += writtenSb247.String()
	for _, secret := range []string{jwt, jwt[strings.LastIndex(jwt, ".")+1:], shownSecrets} {
		if len(files) == 0 || strings.Contains(written, secret) {
			t.Errorf("%d files of state; a token is in what the gateway has written", len(files))
		}
	}
}

// TestOAuth_Cards: where access tokens or API keys are taken, a card says so, in the words of the version that its client names.
func TestOAuth_Cards(t *testing.T) {
	t.Parallel()
	key, _ := makeKey(t, "k", reports, time.Hour)
	file := filepath.Join(t.TempDir(), "keys.yaml")
	writeKeys(t, file, key)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	c := gatewaytest.OnFiles(b)
	schemes := func(version string) (found struct {
		SecuritySchemes map[string]map[string]any
		Security        []map[string][]string
	},
	) {
		got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/agents/members/.well-known/agent-card.json", Media: "-", Header: map[string]string{"A2A-Version": version}})
		gatewaytest.Must(t, json.Unmarshal(got.Body, &found))
		return found
	}
	if got := schemes("1.0"); len(got.SecuritySchemes) > 0 {
		t.Errorf("without either: got %v", got)
	}
	c.OAuth = map[string]config.OAuthIssuer{"corp": {
		Issuer: "https://login.example.com", Identities: []config.OAuthIdentity{{Path: "users/{sub}"}},
		Scopes: map[string]config.Patterns{"read": {"*"}, "write": {"*"}}, Initial: []string{"read"},
	}}
	c.APIKeys.File = file
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	const discovery = "https://login.example.com/.well-known/openid-configuration"
	now, old := schemes("1.0"), schemes("0.3")
	oidc, _ := now.SecuritySchemes["oauth_corp"]["openIdConnectSecurityScheme"].(map[string]any)
	named, _ := now.SecuritySchemes["apiKey"]["apiKeySecurityScheme"].(map[string]any)
	if oidc["openIdConnectUrl"] != discovery || named["name"] != "X-API-Key" || now.SecuritySchemes["mutualTLS"]["mtlsSecurityScheme"] == nil {
		t.Errorf("for 1.0: got %v", now)
	}
	if got := old.SecuritySchemes; got["oauth_corp"]["openIdConnectUrl"] != discovery || got["apiKey"]["in"] != "header" || got["mutualTLS"]["type"] != "mutualTLS" ||
		fmt.Sprint(old.Security) != "[map[mutualTLS:[]] map[bearer:[]] map[oauth_corp:[read]] map[apiKey:[]]]" {
		t.Errorf("for 0.3: got %v", old)
	}
	c.OAuth, c.APIKeys.File = nil, ""
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	if got := schemes("0.3"); len(got.SecuritySchemes) > 0 || len(got.Security) > 0 {
		t.Errorf("without either again: got %v", got)
	}
}
