package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	slimcredential "github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/translators"
)

// slimMember is what the configuration's files say of one SLIM node; of secret,
// jwt and nothing, which stands for JWT-SVIDs, one.
type slimMember struct {
	secret []byte
	jwt    *slimJWT
}

// slimJWT is how members of a node know each other by the JWTs of one issuer.
type slimJWT struct {
	minter  *credential.Minter
	members *credential.Members
	subject string // of our tokens; empty: the name that asks
}

// Mint is slimcredential.TokenSource's.
func (j *slimJWT) Mint(_ context.Context, request slimcredential.TokenRequest) (string, time.Time, error) {
	return j.minter.Mint(cmp.Or(j.subject, request.Subject), request.PublicKey)
}

// Judge is slimcredential.TokenJudge's.
func (j *slimJWT) Judge(_ context.Context, token string) (string, error) {
	return j.members.Judge(token)
}

// slimSVID is the same by SPIFFE JWT-SVIDs.
type slimSVID struct {
	workload *identity.Workload
	bearer   *credential.Bearer
	audience []string
}

// Mint is slimcredential.TokenSource's.
func (v *slimSVID) Mint(ctx context.Context, request slimcredential.TokenRequest) (string, time.Time, error) {
	return v.workload.Token(ctx, slices.Concat(v.audience, []string{request.Audience})...)
}

// Judge is slimcredential.TokenJudge's.
func (v *slimSVID) Judge(_ context.Context, token string) (string, error) {
	id, err := v.bearer.Judge(token)
	return string(id), err
}

// readSLIM reads the files of every SLIM node, in their order.
func readSLIM(c config.SLIM) ([]slimMember, error) {
	members := make([]slimMember, len(c.Nodes))
	var errs []error
	note := func(i int, key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("config: slim.nodes[%d].%s: %w", i, key, err))
		}
	}
	for i, n := range c.Nodes {
		var err error
		switch {
		case n.SecretFile != "":
			members[i].secret, err = readSecret(n.SecretFile)
			note(i, "shared_secret_file", err)
		case n.JWT != nil:
			members[i].jwt, err = readSLIMJWT(n)
			note(i, "jwt", err)
		}
	}
	return members, errors.Join(errs...)
}

func readSecret(file string) ([]byte, error) {
	secret, err := os.ReadFile(file)
	secret = bytes.TrimSpace(secret)
	if err == nil && len(secret) < slimcredential.MinSecret {
		err = fmt.Errorf("shorter than %d bytes", slimcredential.MinSecret)
	}
	return secret, err
}

func readSLIMJWT(n config.SLIMNode) (*slimJWT, error) {
	key, err := readKey(n.JWT.Key)
	if err != nil {
		return nil, err
	}
	keys, err := identity.LoadKeySet(n.JWT.Keys)
	if err != nil {
		return nil, err
	}
	j := &slimJWT{subject: n.JWT.Subject}
	j.minter, err = credential.NewMinter(credential.MinterDeps{
		Key: key, KeyID: n.JWT.KeyID, Issuer: n.JWT.Issuer, Audience: n.Audiences(), Lifetime: time.Duration(n.JWT.Lifetime),
	})
	if err != nil {
		return nil, err
	}
	j.members, err = credential.NewMembers(credential.MembersDeps{
		Keys: keys, Issuer: n.JWT.Issuer, Audience: n.Audiences(), MaxToken: slimcredential.MaxToken,
	})
	return j, err
}

// readKey reads a private key that signs.
func readKey(file string) (crypto.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemKey {
		return nil, fmt.Errorf("%s holds no private key in PEM", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(crypto.Signer)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s holds no PKCS #8 key", file)
	}
	return key, nil
}

// slimNode is one node in the words of the transport.
func (s Config) slimNode(i int) (tslim.NodeConfig, error) {
	n, member := s.Settings.SLIM.Nodes[i], s.Identity.slim[i]
	address, plain := n.Address()
	out := tslim.NodeConfig{
		Address: address, Plain: plain, ID: ect.Identity(n.ID), Org: n.Organization, Namespace: n.Namespace,
		Secret: member.secret, Caller: ect.Identity(n.Caller), Groups: n.MaxGroups(),
	}
	switch {
	case member.secret != nil:
	case member.jwt != nil:
		out.Issued = tslim.Issued{Source: member.jwt, Judge: member.jwt, Caller: func(subject string) ect.Identity {
			return ect.Identity(n.JWT.Callers[subject])
		}}
	case s.Identity.Workload == nil:
		return out, errors.New("slim: jwt_svid is for serve, with identity.workload_api")
	default:
		bearer, err := credential.NewBearer(credential.BearerDeps{Bundle: s.Identity.Bundle, Audience: n.Audiences(), MaxToken: slimcredential.MaxToken})
		if err != nil {
			return out, err
		}
		svid := &slimSVID{workload: s.Identity.Workload, bearer: bearer, audience: n.Audiences()}
		out.Issued = tslim.Issued{Source: svid, Judge: svid, Caller: func(subject string) ect.Identity { return ect.Identity(subject) }}
	}
	return out, nil
}

// renewSLIM puts key sets in force that were read again. Another node, or
// another way to know its members, needs a restart.
func (s Config) renewSLIM(c config.SLIM) (renew func(), err error) {
	fresh := make([]*identity.KeySet, len(s.Identity.slim))
	for i, n := range c.Nodes {
		if i >= len(s.Identity.slim) || n.JWT == nil || s.Identity.slim[i].jwt == nil {
			continue
		}
		if fresh[i], err = identity.LoadKeySet(n.JWT.Keys); err != nil {
			return nil, fmt.Errorf("config: slim.nodes[%d].jwt: %w", i, err)
		}
	}
	return func() {
		for i, keys := range fresh {
			if keys != nil {
				s.Identity.slim[i].jwt.members.Replace(keys)
			}
		}
	}, nil
}

// speakSLIM connects to the configured nodes when the service runs.
func carrySLIM(env Env, codec translators.Translator) (Protocol, error) {
	deps := tslim.NetworkDeps{Egress: env.Guards.Agents, Logger: env.Config.Logger}
	for i := range env.Config.Settings.SLIM.Nodes {
		n, err := env.Config.slimNode(i)
		if err != nil {
			return Protocol{}, err
		}
		env.Guards.Agents.Allow(n.Address)
		deps.Nodes = append(deps.Nodes, n)
	}
	network, err := tslim.NewNetwork(deps)
	if err != nil {
		return Protocol{}, err
	}
	dialer, err := tslim.NewDialer(tslim.DialerDeps{Network: network, Form: codec})
	if err != nil || len(deps.Nodes) == 0 {
		return Protocol{Codec: codec, Dialer: dialer}, err
	}
	listener, err := tslim.NewListener(tslim.ListenerDeps{
		Network: network, Form: codec, Agents: env.exposed, Anonymous: env.Config.Anonymous(), Version: env.Config.Program.Version,
		Reserved: env.Config.reserved(),
	})
	return Protocol{Codec: codec, Dialer: dialer, Listener: listener}, err
}

// exposed are the agents that callers may know by name.
func (env Env) exposed() []string {
	agents := env.List()
	names := make([]string, 0, len(agents))
	for _, agent := range agents {
		names = append(names, agent.Name)
	}
	return names
}
