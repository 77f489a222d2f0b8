package oidc

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/oauth2"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func TestMain(m *testing.M) { gatewaytest.Main(m) }

// What the client is at the server.
const (
	clientID     = "desktop"
	clientSecret = "a-secret"
	redirectURL  = "https://localhost/done" // where nobody is: the browser stops before it
)

// store is that of the server's example, whose clients have no JWTs for access tokens, and whose JWTs have no scope.
type store struct{ *storage.Storage }

func (s store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	return withJWT{c}, err
}

func (s store) GetPrivateClaimsFromScopes(_ context.Context, _, _ string, scopes []string) (map[string]any, error) {
	return map[string]any{"scope": strings.Join(scopes, " ")}, nil
}

type withJWT struct{ op.Client }

func (withJWT) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }
func (withJWT) IsScopeAllowed(string) bool          { return true }

// start starts the server. It is asked for its certificate at each handshake. Its user signs in at once.
func start(t *testing.T, certificate func() tls.Certificate) (issuer string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{certificate()}, MinVersion: tls.VersionTLS13}, nil
	}}
	issuer = "https://" + server.Listener.Addr().String()
	users := storage.NewUserStore(issuer)
	clients := store{storage.NewStorageWithClients(users, map[string]*storage.Client{clientID: storage.WebClient(clientID, clientSecret, redirectURL)})}
	provider, err := op.NewProvider(&op.Config{CryptoKey: [32]byte{1}, CodeMethodS256: true, AuthMethodPost: true}, clients, op.StaticIssuer(issuer))
	gatewaytest.Must(t, err)
	callback := op.AuthCallbackURL(provider)
	mux := http.NewServeMux()
	mux.Handle("/", provider)
	mux.Handle("/login/", op.NewIssuerInterceptor(provider.IssuerFromRequest).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("authRequestID")
		if err := clients.CheckUsernamePassword(users.GetUserByID("id1").Username, "verysecure", id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, callback(r.Context(), id), http.StatusFound)
	}))
	server.Config.Handler = mux
	server.StartTLS()
	t.Cleanup(server.Close)
	return issuer
}

// browse follows redirects until the client's own URL, and gives the parameters there.
func browse(ctx context.Context, client *http.Client, at string) (url.Values, error) {
	for range 10 {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(at, redirectURL) {
			return request.URL.Query(), nil
		}
		page, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		next, err := page.Location()
		if err = errors.Join(err, page.Body.Close()); err != nil {
			return nil, errors.Join(errors.New(page.Status+" of "+at), err)
		}
		at = next.String()
	}
	return nil, errors.New("no end of redirects at " + at)
}

// TestTokens_WithoutTypeAndResource: a client of the official SDK finds a server whose tokens do not have the form of RFC
// 9068, which the operator permits with legacy_type and audiences: it lists tools, and steps up for a call. An ID token of the same
// server, for the same client, is no access token.
func TestTokens_WithoutTypeAndResource(t *testing.T) {
	t.Parallel()
	var certificate atomic.Pointer[tls.Certificate]
	issuer := start(t, func() tls.Certificate { return *certificate.Load() })
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{OAuth: map[string]config.OAuthIssuer{"corp": {
		Issuer: issuer, LegacyType: true, Audiences: []string{clientID}, Identities: []config.OAuthIdentity{{Subject: "id1", Path: "users/{sub}"}},
		Scopes: map[string]config.Patterns{"read": {"members#describe"}, "call": {"members"}}, Initial: []string{"read"},
	}}}})
	svid := gatewaytest.Issue(t, b.Dev.Authority, "/authorization-server", identity.SVIDRequest{})
	certificate.Store(new(svid.Certificate()))
	at := b.At.Public + "/agents/members/mcp"

	var scopes []string
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: clientID, ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: clientSecret}},
		RedirectURL:         redirectURL, Client: b.Anonymous,
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			u, err := url.Parse(args.URL)
			if err != nil {
				return nil, err
			}
			scopes = append(scopes, u.Query().Get("scope"))
			back, err := browse(ctx, b.Anonymous, args.URL)
			return &auth.AuthorizationResult{Code: back.Get("code"), State: back.Get("state"), Iss: back.Get("iss")}, err
		},
	})
	gatewaytest.Must(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "desktop", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: at, HTTPClient: b.Anonymous, OAuthHandler: handler, DisableStandaloneSSE: true,
	}, nil)
	gatewaytest.Must(t, err)
	defer func() { gatewaytest.Must(t, session.Close()) }()
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) == 0 || !slices.Equal(scopes, []string{"read"}) {
		t.Fatalf("got %v, %v after asking for %q", tools, err, scopes)
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": 1, "b": 2}})
	if err != nil || result.IsError || len(scopes) != 2 || !strings.Contains(scopes[1], "call") {
		t.Fatalf("got %+v, %v after asking for %q", result, err, scopes)
	}
	refusesIDToken(t, b, issuer, at)
}

// refusesIDToken gets both tokens of one grant, and shows each.
func refusesIDToken(t *testing.T, b *gatewaytest.Fixture, issuer, at string) {
	t.Helper()
	desktop := oauth2.Config{
		ClientID: clientID, ClientSecret: clientSecret, RedirectURL: redirectURL, Scopes: []string{"openid", "call"},
		Endpoint: oauth2.Endpoint{AuthURL: issuer + "/authorize", TokenURL: issuer + "/oauth/token"},
	}
	verifier := oauth2.GenerateVerifier()
	back, err := browse(t.Context(), b.Anonymous, desktop.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)))
	gatewaytest.Must(t, err)
	token, err := desktop.Exchange(context.WithValue(t.Context(), oauth2.HTTPClient, b.Anonymous), back.Get("code"), oauth2.VerifierOption(verifier))
	gatewaytest.Must(t, err)
	id, _ := token.Extra("id_token").(string)
	for shown, want := range map[string]int{token.AccessToken: http.StatusOK, id: http.StatusUnauthorized} {
		header := gatewaytest.MCPHeader("2025-11-25")
		header["Authorization"] = "Bearer " + shown
		got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: at, Header: header, Body: gatewaytest.LegacyCall("add", `{"a":1,"b":2}`)})
		if got.Status != want {
			t.Errorf("the token of %d octets: %d %s, want %d", len(shown), got.Status, got.Header.Get("WWW-Authenticate"), want)
		}
	}
}
