package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/problem"
)

// keys are where the keys of ECTs come from: JWK sets that the operator gave
// for a peer, then the peer's connection and its certificates.
func (s settings) keys() (ect.KeySource, error) {
	sets := map[ect.Identity]*identity.KeySet{}
	for id, peer := range s.config.Peers {
		if peer.Keys == "" {
			continue
		}
		set, err := identity.LoadKeySet(peer.Keys)
		if err != nil {
			return nil, fmt.Errorf("peers.%s.keys: %w", id, err)
		}
		sets[ect.Identity(id)] = set
	}
	listed, err := identity.NewJWKSource(sets)
	if err != nil {
		return nil, err
	}
	ring, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: s.bundle})
	return identity.KeySources{listed, ring}, err
}

// dialects are how peers write and read ECTs.
func (s settings) dialects() (*ect.Dialects, error) {
	configured := map[ect.Identity]ect.Dialect{}
	for id, peer := range s.config.Peers {
		if peer.Dialect != "" {
			configured[ect.Identity(id)] = ect.Dialect(peer.Dialect)
		}
	}
	return ect.NewDialects(ect.DialectsDeps{Configured: configured})
}

// minLevel is the lowest level that a peer's own ECTs may have.
func (s settings) minLevel(id ect.Identity) ect.Level {
	if s.config.Peers[string(id)].MinLevel == "L1" {
		return ect.L1
	}
	return ect.L2
}

// authenticators take callers without a client certificate: a workload identity
// token with its proof, or a JWT-SVID.
func (s settings) authenticators(replay ect.ReplayCache) ([]httpapi.Authenticator, error) {
	self := []string{string(s.svid.ID)}
	bearer, err := credential.NewBearer(credential.BearerDeps{Bundle: s.bundle, Audience: self})
	if err != nil {
		return nil, err
	}
	list := []httpapi.Authenticator{
		func(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
			caller, ok, err := bearer.Caller(r)
			if err != nil { // a bearer token has a challenge of its own, unlike a WIT (RFC 6750 section 3)
				err = errors.Join(&problem.UnauthenticatedError{}, err)
			}
			return caller, ok, err
		},
	}
	if len(s.config.Identity.Issuers) == 0 {
		return list, nil
	}
	issuers := map[string]credential.Issuer{}
	for domain, file := range s.config.Identity.Issuers {
		set, err := identity.LoadKeySet(file)
		if err != nil {
			return nil, fmt.Errorf("identity.issuers.%s: %w", domain, err)
		}
		issuers[domain] = credential.Issuer{Keys: set}
	}
	wimse, err := credential.NewWIMSE(credential.WIMSEDeps{Issuers: issuers, Replay: replay, Audience: self})
	if err != nil {
		return nil, err
	}
	return append([]httpapi.Authenticator{wimse.Caller}, list...), nil
}
