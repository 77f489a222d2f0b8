package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

// ainpKeyFile is the AINP key of a development gateway.
const ainpKeyFile = "ainp-key.pem"

const pemKey = "PRIVATE KEY"

// ainpIdentity makes the identity of the gateway in AINP; zero: there is no key.
func ainpIdentity(c config.AINP) (tainp.Identity, error) {
	if c.Key == "" {
		if c.DID != "" {
			return tainp.Identity{}, errors.New("a DID needs a key")
		}
		return tainp.Identity{}, nil
	}
	parsed, err := readKey(c.Key)
	if err != nil {
		return tainp.Identity{}, err
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return tainp.Identity{}, fmt.Errorf("%s holds no Ed25519 key", c.Key)
	}
	did := c.DID
	if did == "" {
		public, _ := key.Public().(ed25519.PublicKey)
		did = tainp.KeyDID(public)
	}
	return tainp.Identity{DID: did, Key: key}, nil
}

// developmentAINP makes the key of a development gateway, once.
func developmentAINP(c config.AINP, dir string) (tainp.Identity, error) {
	if c.Key != "" {
		return ainpIdentity(c)
	}
	c.Key = filepath.Join(dir, ainpKeyFile)
	if _, err := os.Stat(c.Key); !errors.Is(err, fs.ErrNotExist) {
		return ainpIdentity(c)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tainp.Identity{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return tainp.Identity{}, err
	}
	if err := os.WriteFile(c.Key, pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), 0o600); err != nil {
		return tainp.Identity{}, err
	}
	return ainpIdentity(c)
}

// ainpPeer is what the operator says about an agent's signatures.
func (out *service) ainpPeer(name string) tainp.Peer {
	agent, _ := out.directory.Find(name)
	e, _ := agent.EndpointOf(ainp.Binding)
	peer := tainp.Peer{DID: e.DID, Unsigned: e.Signature == directory.SignatureNone}
	if e.Signature == directory.SignatureRaw {
		peer.Profile = ainp.SigRaw
	}
	return peer
}

// ainpCaller is the workload that a DID stands for.
func (out *service) ainpCaller(did string) (ect.Identity, bool) {
	id, ok := (*out.dids.Load())[did]
	return id, ok
}

// ainpNamed reports whether the operator names a DID, as a caller's or an agent's.
func (out *service) ainpNamed(did string) bool {
	if _, ok := out.ainpCaller(did); ok {
		return true
	}
	return slices.ContainsFunc(out.directory.List(), func(agent directory.Agent) bool {
		e, ok := agent.EndpointOf(ainp.Binding)
		return ok && e.DID == did
	})
}

// didDocuments fetches the documents of DIDs that the operator names. It has
// nothing of what is open toward agents, and shows no certificate: what a document
// says is for everyone.
type didDocuments struct{ guard *egress.Guard }

func (out *service) didDocuments() (didDocuments, error) {
	guard, err := egress.New(egress.Deps{TLS: withoutCertificate{out.settings.source}})
	if err != nil {
		return didDocuments{}, err
	}
	out.close = append(out.close, func() error { guard.CloseIdle(); return nil })
	return didDocuments{guard}, nil
}

// DoAs is transport.Client's. To name a DID is to say that its host may be asked, also
// at a private address, for as long as the request takes.
func (d didDocuments) DoAs(request *http.Request, expected ect.Identity) (*http.Response, error) {
	d.guard.Allow(request.URL.Host)
	defer d.guard.Disallow(request.URL.Host)
	return d.guard.DoAs(request, expected)
}

// withoutCertificate makes TLS configurations that show no client certificate.
type withoutCertificate struct{ source *identity.Source }

// ClientConfig is egress.ClientTLS's.
func (w withoutCertificate) ClientConfig(expected ect.Identity, roots ...*x509.Certificate) *tls.Config {
	conf := w.source.ClientConfig(expected, roots...)
	conf.GetClientCertificate = nil
	return conf
}

// connections are bounds of connections that stay open. On a development gateway,
// where all callers may be one, that one may have them all.
func (s settings) connections(b config.ConnectionBounds) config.ConnectionBounds {
	whole := s.config.Sockets(b)
	if s.dev && b.PerCaller == 0 {
		whole.PerCaller = whole.Total
	}
	if s.dev && b.PerAddress == 0 {
		whole.PerAddress = whole.Unidentified
	}
	return whole
}

// ainpReplays remembers AINP's messages where the uses of tokens are: that is
// shared by all replicas, and knows what it cannot know any more (R6).
type ainpReplays struct{ cache ect.ReplayCache }

// First: no issuer of tokens is called ainp.
func (r ainpReplays) First(ctx context.Context, key string, at, until time.Time) (bool, error) {
	name := ect.Hash([]byte(key))
	state, err := r.cache.Claim(ctx, ect.ReplayKey{Issuer: "ainp", ID: ect.ID(name)},
		ect.ReplayUse{Token: name, Issued: at, Until: until, Holder: transport.CallerFrom(ctx).ID})
	return state == ect.ReplayFresh, err
}
