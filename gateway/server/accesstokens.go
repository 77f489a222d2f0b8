package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"

	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi/resource"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// accessTokens are taken of the issuers that are in force, and what clients without one are shown.
type accessTokens struct {
	verifier *oauth.Verifier
	exit     *egress.Guard
	allowed  map[string]bool // hosts of issuers, which may have private addresses
	issuers  atomic.Pointer[[]oauth.Issuer]
	metadata atomic.Pointer[resource.Metadata]
}

// newAccessTokens takes tokens of no issuer yet. What it asks issuers goes out through the guard.
func newAccessTokens(trustDomain string, exit *egress.Guard) (*accessTokens, error) {
	a := &accessTokens{exit: exit, allowed: map[string]bool{}}
	var err error
	a.verifier, err = oauth.New(oauth.Deps{TrustDomain: trustDomain, Exit: a.ask})
	a.issuers.Store(new([]oauth.Issuer))
	a.metadata.Store(&resource.Metadata{})
	return a, err
}

// use puts issuers in force, in place of those that are. Nothing else calls it at the same time. On an error nothing changes.
func (a *accessTokens) use(issuers []oauth.Issuer) error {
	if err := oauth.Check(issuers); err != nil {
		return err
	}
	hosts := map[string]bool{}
	for _, issuer := range issuers {
		for _, place := range []string{issuer.URL, issuer.JWKS, issuer.Introspection.URL} {
			if u, err := url.Parse(place); err == nil && u.Host != "" {
				hosts[u.Host] = true
			}
		}
	}
	for host := range hosts {
		if !a.allowed[host] {
			a.exit.Allow(host)
		}
	}
	if err := a.verifier.Use(issuers); err != nil {
		return err // cannot be: they were checked
	}
	for host := range a.allowed {
		if !hosts[host] {
			a.exit.Disallow(host)
		}
	}
	a.allowed = hosts
	a.issuers.Store(&issuers)
	now := &resource.Metadata{}
	now.Servers, now.Scopes, now.First = a.verifier.Servers()
	a.metadata.Store(now)
	return nil
}

// close ends what goes on in the background.
func (a *accessTokens) close() error {
	a.verifier.Close()
	return nil
}

// ask is the way to the issuers. It needs introspections at its guard.
func (a *accessTokens) ask(r *http.Request, authorization string) (*http.Response, error) {
	return a.exit.DoAs(r.WithContext(context.WithValue(r.Context(), introspectionKey{}, authorization)), "")
}

// introspections shows issuers of access tokens what the gateway introspects with: the Authorization field that
// accessTokens gives a request, and nothing that a request has of itself. It is the egress.Credentials of their guard alone.
// Posts that fail have no bound there, unlike those of webhooks: what is posted goes to servers that the
// operator names, and package oauth bounds how often.
type introspections struct{}

type introspectionKey struct{}

// For implements egress.Credentials.
func (introspections) For(r *http.Request) (egress.Credential, error) {
	if authorization, _ := r.Context().Value(introspectionKey{}).(string); authorization != "" {
		return egress.Credential{Field: "Authorization", Value: authorization}, nil
	}
	return egress.Credential{}, nil
}

// Refused implements egress.Credentials: there is nothing newer.
func (introspections) Refused(*http.Request, egress.Credential) bool { return false }

// loadIssuers reads the issuers of access tokens, with the secrets for their introspection.
func loadIssuers(section map[string]config.OAuthIssuer) ([]oauth.Issuer, error) {
	issuers := config.OAuthIssuers(section)
	var errs []error
	for i, issuer := range issuers {
		file := section[issuer.Name].Introspection.SecretFile
		if file == "" {
			continue
		}
		secret, err := os.ReadFile(file) //nolint:gosec // the operator names the file
		if secret = bytes.TrimSpace(secret); err == nil && len(secret) == 0 {
			err = errors.New("the file is empty")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("oauth.'%s'.introspection.client_secret_file: %w", issuer.Name, err))
		}
		issuers[i].Introspection.Secret = string(secret)
	}
	return issuers, errors.Join(errs...)
}
