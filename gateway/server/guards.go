package server

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/httpapi/resource"
	"github.com/aepb/aepb-gateway/gateway/transport/credentials"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/translators/a2a/security"
)

// Guards judge what leaves, each for its own kind of calls.
type Guards struct {
	Agents *egress.Guard // what goes to listed agents and peers
	// Webhooks is the guard of what is posted to URLs that callers name. What the operator opens toward agents is not
	// open to them, no client certificate is shown, and nothing is posted to listed agents, peers or this gateway
	// itself: they would take a post for the gateway's own word.
	Webhooks *egress.Guard
	Programs *stdio.Host // runs the programs of agents

	credentials *shownCredentials
	issuers     *egress.Guard // fetches the keys of issuers of access tokens, and asks about opaque ones
	documents   *egress.Guard // fetches capability documents that callers name, to which nothing of what is open toward agents is open
}

// newGuards makes them. taken reports whether a listed agent or a peer is at a host and port.
func newGuards(s Config, taken func(at string) bool) (*Guards, error) {
	conf, g := egress.Config{AllowLoopbackHTTP: s.Development}, &Guards{}
	var errs [5]error
	if g.credentials, errs[4] = newShownCredentials(s); errs[4] != nil {
		return nil, errs[4]
	}
	g.Agents, errs[0] = egress.New(egress.Deps{TLS: s.Identity.Source, Config: conf, Credentials: g.credentials.service, Plain: g.credentials.isPlain})
	g.documents, errs[1] = egress.New(egress.Deps{TLS: s.Identity.Source, Config: conf, Refuses: s.listensAt})
	g.issuers, errs[4] = egress.New(egress.Deps{TLS: s.Identity.Source, Config: conf, Refuses: s.listensAt, Anonymous: true, Credentials: introspections{}})
	if s.Development {
		conf.AllowPrivate = []string{"127.0.0.0/8", "::1/128"}
	}
	g.Webhooks, errs[2] = egress.New(egress.Deps{
		TLS: s.Identity.Source, Config: conf, Anonymous: true,
		Refuses: func(at string) bool { return s.listensAt(at) || g.Agents.Reached(at) || taken(at) },
	})
	g.Programs, errs[3] = stdio.NewHost(stdio.Deps{Limits: s.Settings.Limits.Processes(), Supervisor: s.Program.Supervisor, Logger: s.Logger})
	return g, errors.Join(errs[:]...)
}

// close ends the programs, and the connections on which nothing is said.
func (g *Guards) close() error {
	ended := g.credentials.service.Close()
	for _, guard := range []*egress.Guard{g.Agents, g.documents, g.issuers, g.Webhooks, g.credentials.endpoints} {
		guard.CloseIdle()
	}
	return errors.Join(ended, g.Programs.Close())
}

// renew has the next connections show the renewed certificate.
func (g *Guards) renew() {
	for _, guard := range []*egress.Guard{g.Agents, g.documents, g.issuers, g.Webhooks, g.credentials.endpoints} {
		guard.Renew()
	}
}

// shownCredentials are what agents are shown, and the way to the token endpoints, to which nothing of what is open
// toward agents is open.
type shownCredentials struct {
	service   *credentials.Service
	endpoints *egress.Guard
	allowed   map[string]bool // hosts of token endpoints
	plain     atomic.Pointer[map[string]bool]
}

func newShownCredentials(s Config) (out *shownCredentials, err error) {
	out = &shownCredentials{allowed: map[string]bool{}}
	if out.endpoints, err = egress.New(egress.Deps{TLS: s.Identity.Source, Credentials: credentials.ClientSecrets{}}); err != nil {
		return nil, err
	}
	out.service, err = credentials.New(credentials.Deps{Client: out.endpoints, Assert: s.Identity.assert, NewID: func() string { return string(ect.NewID()) }})
	return out, err
}

// assert vouches for the gateway at a token endpoint: with a JWT-SVID of the Workload API, or with a JWT that the key
// of its X.509-SVID signs.
func (i Identity) assert(ctx context.Context, client, audience string) (credentials.Assertion, error) {
	if i.Workload != nil {
		token, _, err := i.Workload.Token(ctx, audience)
		return credentials.Assertion{JWT: token, SVID: true, ID: string(i.SVID.ID)}, err
	}
	own, err := i.Source.ClientConfig("").GetClientCertificate(nil)
	if err != nil {
		return credentials.Assertion{}, err
	}
	d := credential.AssertionDeps{Client: client, Audience: audience, ID: string(ect.NewID()), Now: time.Now()}
	if client == "" {
		d.Client = string(i.SVID.ID)
	}
	d.Key, _ = own.PrivateKey.(crypto.Signer)
	for _, raw := range own.Certificate {
		certificate, err := x509.ParseCertificate(raw)
		if err != nil {
			return credentials.Assertion{}, err
		}
		d.Chain = append(d.Chain, certificate)
	}
	made, err := credential.Assertion(d)
	return credentials.Assertion{JWT: made, ID: d.Client}, err
}

// use puts the credentials of the configuration in force. Nothing else calls it at the same time.
func (c *shownCredentials) use(settings config.Config) {
	all, hosts, plain := config.Credentials(settings), map[string]bool{}, map[string]bool{}
	for _, one := range all {
		if one.OAuth != nil {
			hosts[hostport(one.OAuth.TokenURL)] = true
		}
	}
	for _, agent := range settings.Agents {
		if !agent.Plain {
			continue
		}
		for _, at := range agent.PlainPlaces() {
			plain[at] = true
		}
	}
	for at := range hosts {
		if !c.allowed[at] {
			c.endpoints.Allow(at)
		}
	}
	c.plain.Store(&plain)
	c.service.Use(all)
	for at := range c.allowed {
		if !hosts[at] {
			c.endpoints.Disallow(at)
		}
	}
	c.allowed = hosts
}

// hostport is that of an absolute https URL.
func hostport(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// isPlain reports whether the operator says that a host and port of this machine takes plain HTTP.
func (c *shownCredentials) isPlain(at string) bool {
	plain := c.plain.Load()
	return plain != nil && (*plain)[at]
}

// document says how the credential of an agent stands; nil: it has none.
func (c *shownCredentials) document(agent string) *admindoc.Credential {
	status, ok := c.service.Status(agent)
	if !ok {
		return nil
	}
	out := &admindoc.Credential{Kind: status.Kind, Error: status.Failed}
	if !status.Ends.IsZero() {
		ends := status.Ends.UTC()
		out.Ends = &ends
	}
	return out
}

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

// security is how callers may prove who they are, for cards.
func (t *trust) security() security.Schemes {
	var out security.Schemes
	for _, issuer := range *t.access.issuers.Load() {
		out.Issuers = append(out.Issuers, security.Issuer{Name: issuer.Name, URL: issuer.URL, Scopes: issuer.Scopes.First()})
	}
	if t.apiKeys.Load() != nil {
		out.KeyField = apikey.Field
	}
	return out
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
		secret, err := os.ReadFile(file)
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
