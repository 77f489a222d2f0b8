package server

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
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/transport"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

func carryAINP(env Env, codec translators.Translator) (Protocol, error) {
	if env.Config.Identity.AINP.Key == nil {
		return Protocol{}, nil
	}
	guard, err := egress.New(egress.Deps{TLS: withoutCertificate{env.Config.Identity.Source}})
	if err != nil {
		return Protocol{}, err
	}
	keys, bounds := tainp.NewKeys(didDocuments{guard}, nil), env.Config.Connections(env.Config.Settings.AINP.Sockets)
	dialer, err := tainp.NewDialer(tainp.DialerDeps{
		Client: env.Guards.Agents, Form: codec, Self: env.Config.Identity.AINP, Keys: keys, Peer: env.ainpPeer,
	})
	if err != nil {
		return Protocol{}, err
	}
	server, err := tainp.NewServer(tainp.ServerDeps{
		Form: codec, Self: env.Config.Identity.AINP, Keys: keys, Replays: ainpReplays{env.Replays}, Identity: env.ainpCaller,
		Receiver: dialer.Receiver, Named: env.ainpNamed, ByDID: func() bool { return len(env.DIDs()) > 0 },
		Refused: func(ctx context.Context, agent string, err error) {
			_ = env.Refusals(string(codec.Info().Binding)).Failed(ctx, agent, err)
		},
		Socket: tainp.SocketConfig{
			Connections: bounds.Total, PerCaller: bounds.PerCaller, Unidentified: bounds.Unidentified, PerAddress: bounds.PerAddress,
		},
	})
	if err != nil {
		return Protocol{}, err
	}
	return Protocol{
		Codec: codec, Dialer: dialer, Drain: server.Close, Drained: server.Wait, Usage: server.Usage, Close: func() error { guard.CloseIdle(); return nil },
		Endpoints: func(handler transport.Handler) httpapi.Endpoints { return at("/ainp", server.Handler(handler)) },
	}, nil
}

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

// developmentAINP makes the key of a development gateway, once; without a folder there is none but the configured one.
func developmentAINP(c config.AINP, dir string) (tainp.Identity, error) {
	if c.Key != "" || dir == "" {
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
func (env Env) ainpPeer(name string) tainp.Peer {
	agent, _ := env.Find(name)
	e, _ := agent.EndpointOf(ainp.Binding)
	peer := tainp.Peer{DID: e.DID, Unsigned: e.Signature == directory.SignatureNone}
	if e.Signature == directory.SignatureRaw {
		peer.Profile = ainp.SigRaw
	}
	return peer
}

// ainpCaller is the workload that a DID stands for.
func (env Env) ainpCaller(did string) (ect.Identity, bool) {
	id, ok := env.DIDs()[did]
	return id, ok
}

// ainpNamed reports whether the operator names a DID, as a caller's or an agent's.
func (env Env) ainpNamed(did string) bool {
	if _, ok := env.ainpCaller(did); ok {
		return true
	}
	return slices.ContainsFunc(env.List(), func(agent directory.Agent) bool {
		e, ok := agent.EndpointOf(ainp.Binding)
		return ok && e.DID == did
	})
}

// didDocuments fetches the documents of DIDs that the operator names. It has
// nothing of what is open toward agents, and shows no certificate: what a document
// says is for everyone.
type didDocuments struct{ guard *egress.Guard }

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
