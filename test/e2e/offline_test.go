package e2e

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// This file is anybody: it has a trust bundle, a stock JWT library and the
// standard library, and has never heard of the gateway.

// proof is what an ECT says that an auditor of translations reads.
type proof struct {
	jwt.RegisteredClaims
	Workflow   string   `json:"wid"`
	Act        string   `json:"exec_act"`
	Parents    []string `json:"par"`
	InputHash  string   `json:"inp_hash"`
	OutputHash string   `json:"out_hash"`
	Ext        struct {
		Leg      string   `json:"aepb.leg"`
		Warnings []string `json:"aepb.translation_warnings"`
	} `json:"ext"`
}

// anchors reads a SPIFFE trust bundle: a JWKS whose x509-svid keys each carry
// their certificate.
func anchors(bundle []byte) (*x509.CertPool, error) {
	var set struct {
		Keys []struct {
			Use   string   `json:"use"`
			Chain [][]byte `json:"x5c"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(bundle, &set); err != nil {
		return nil, fmt.Errorf("trust bundle: %w", err)
	}
	pool, found := x509.NewCertPool(), false
	for _, key := range set.Keys {
		if key.Use != "x509-svid" || len(key.Chain) != 1 {
			continue
		}
		anchor, err := x509.ParseCertificate(key.Chain[0])
		if err != nil {
			return nil, fmt.Errorf("trust bundle: %w", err)
		}
		pool.AddCert(anchor)
		found = true
	}
	if !found {
		return nil, errors.New("trust bundle: no x509-svid key")
	}
	return pool, nil
}

// audit verifies one compact ECT. Evidence does not go off: its chain is judged
// as of when it was issued, and its own time not at all.
func audit(roots *x509.CertPool, compact string) (proof, error) {
	var p proof
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithoutClaimsValidation(), jwt.WithStrictDecoding())
	_, err := parser.ParseWithClaims(compact, &p, func(token *jwt.Token) (any, error) {
		if token.Header["typ"] != "exec+jwt" {
			return nil, fmt.Errorf("typ is %v", token.Header["typ"])
		}
		chain, err := chainOf(token.Header["x5c"])
		if err != nil {
			return nil, err
		}
		if p.IssuedAt == nil || p.ExpiresAt == nil || !p.ExpiresAt.After(p.IssuedAt.Time) || p.Parents == nil || p.ID == "" {
			return nil, errors.New("iat, exp, jti or par is missing")
		}
		return chain[0].PublicKey, leadsTo(chain[0], chain[1:], roots, p.Issuer, p.IssuedAt.Time)
	})
	return p, err
}

func chainOf(x5c any) ([]*x509.Certificate, error) {
	list, ok := x5c.([]any)
	if !ok || len(list) == 0 {
		return nil, errors.New("x5c is missing")
	}
	chain := make([]*x509.Certificate, len(list))
	for i, entry := range list {
		text, _ := entry.(string)
		der, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("x5c: %w", err)
		}
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("x5c: %w", err)
		}
	}
	return chain, nil
}

// leadsTo checks the way from a leaf to an anchor and that the leaf is of the
// one who is named.
func leadsTo(leaf *x509.Certificate, between []*x509.Certificate, roots *x509.CertPool, id string, at time.Time) error {
	if leaf == nil || len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != "spiffe" || leaf.URIs[0].String() != id {
		return fmt.Errorf("the certificate is not that of %s", id)
	}
	middle := x509.NewCertPool()
	for _, cert := range between {
		middle.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: middle, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// digest is how an ECT names bytes.
func digest(bytes []byte) string {
	sum := sha256.Sum256(bytes)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// spoil gives a token that is good for a second longer, under the signature that
// it has.
func spoil(compact string) (string, error) {
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		return "", errors.New("not a compact JWS")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var claims map[string]json.RawMessage
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", err
	}
	var exp int64
	if err := json.Unmarshal(claims["exp"], &exp); err != nil {
		return "", err
	}
	claims["exp"] = json.RawMessage(fmt.Sprint(exp + 1))
	if payload, err = json.Marshal(claims); err != nil {
		return "", err
	}
	parts[1] = base64.RawURLEncoding.EncodeToString(payload)
	return strings.Join(parts, "."), nil
}
