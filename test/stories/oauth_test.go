package stories

import (
	"context"
	"crypto/tls"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/oauth/oauthtest"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestOAuth_SDKClientFindsItsToken: a client of the official MCP SDK has nothing but the URL of an endpoint. It finds the
// authorization server by the refusal, asks for a token for this endpoint, and lists tools; for a call it steps up
// to the scope that the next refusal names.
func TestOAuth_SDKClientFindsItsToken(t *testing.T) {
	t.Parallel()
	var certificate atomic.Pointer[tls.Certificate]
	server := oauthtest.Start(t, func() tls.Certificate { return *certificate.Load() })
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{OAuth: map[string]config.OAuthIssuer{"corp": {
		Issuer: server.URL, Identities: []config.OAuthIdentity{{Path: "users/{sub}"}},
		Scopes: map[string]config.Patterns{"read": {"members#describe"}, "call": {"members"}}, Initial: []string{"read"},
	}}}})
	svid := gatewaytest.Issue(t, b.Dev.Authority, "/authorization-server", identity.SVIDRequest{})
	certificate.Store(new(svid.Certificate()))
	var scopes []string
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: "desktop", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "x"}},
		RedirectURL:         "https://localhost/done", Client: b.Anonymous,
		AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			u, err := url.Parse(args.URL)
			if err != nil {
				return nil, err
			}
			scopes = append(scopes, u.Query().Get("scope"))
			return &auth.AuthorizationResult{Code: u.Query().Get("scope"), State: u.Query().Get("state")}, nil
		},
	})
	gatewaytest.Must(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "desktop", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: b.At.Public + "/agents/members/mcp", HTTPClient: b.Anonymous, OAuthHandler: handler, DisableStandaloneSSE: true,
	}, nil)
	gatewaytest.Must(t, err)
	defer func() { gatewaytest.Must(t, session.Close()) }()
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) == 0 {
		t.Fatalf("got %v, %v", tools, err)
	}
	if !slices.Equal(scopes, []string{"read"}) {
		t.Errorf("asked for %q before the first call, want read", scopes)
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": 1, "b": 2}})
	if err != nil || result.IsError {
		t.Fatalf("got %+v, %v (asked for %q)", result, err, scopes)
	}
	if len(scopes) != 2 || !strings.Contains(scopes[1], "call") {
		t.Errorf("asked for %q, want a second time with call", scopes)
	}
}
