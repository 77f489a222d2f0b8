package identity

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// maxBundle bounds a bundle document, bytes. Real ones have a few kilobytes.
const maxBundle = 1 << 20

// refreshHint is how often a reader of our bundle should look again, seconds.
const refreshHint = 300

// What a bundle's keys vouch for: X.509 SVIDs, or JWT-SVIDs. Others are not ours.
const (
	useX509 = "x509-svid"
	useJWT  = "jwt-svid"
)

// Why a bundle document is refused.
var (
	errBundleSize = fmt.Errorf("identity: a bundle document has at most %d bytes", maxBundle)
	errBundleKey  = errors.New("identity: an x509-svid key carries exactly one certificate, and it is that key's")
	errAnchorKey  = errors.New("identity: an anchor's key is neither EC nor RSA")
)

// keySet is a JWK set with SPIFFE's two additions.
type keySet struct {
	Keys        []webKey `json:"keys"`
	RefreshHint int64    `json:"spiffe_refresh_hint,omitempty"`
}

// webKey is a JWK that stands for an X.509 authority.
type webKey struct {
	Use    string   `json:"use"`
	Type   string   `json:"kty"`
	Curve  string   `json:"crv,omitempty"`
	X      string   `json:"x,omitempty"`
	Y      string   `json:"y,omitempty"`
	N      string   `json:"n,omitempty"`
	E      string   `json:"e,omitempty"`
	Chains [][]byte `json:"x5c,omitempty"` // RFC 7517 section 4.7: standard base64, as encoding/json writes bytes
}

// MarshalJWKS writes the bundle's own trust domain as a SPIFFE bundle: a JWK
// set with one x509-svid key per anchor (SPIFFE Trust Domain and Bundle,
// section 4).
func (b *Bundle) MarshalJWKS() ([]byte, error) {
	set := keySet{Keys: []webKey{}, RefreshHint: refreshHint}
	for _, anchor := range b.Anchors() {
		key, err := webKeyOf(anchor)
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, key)
	}
	return json.MarshalIndent(set, "", "  ")
}

// ParseBundle reads a SPIFFE bundle of the trust domain it is known to be from
// (the document itself does not say). Its jwt-svid keys are for TokenKeys, keys
// of other uses are passed over; at least one x509-svid key is required.
func ParseBundle(trustDomain string, jwks []byte) (*Bundle, error) {
	if len(jwks) > maxBundle {
		return nil, errBundleSize
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(jwks, &set); err != nil {
		return nil, fmt.Errorf("identity: bundle document: %w", err)
	}
	var anchors []*x509.Certificate
	tokens := &KeySet{}
	for _, raw := range set.Keys {
		anchor, err := readBundleKey(raw, tokens)
		if err != nil {
			return nil, err
		}
		if anchor != nil {
			anchors = append(anchors, anchor)
		}
	}
	b, err := NewBundle(trustDomain, anchors...)
	if err == nil && len(tokens.keys) > 0 {
		b.setTokenKeys(b.home, tokens)
	}
	return b, err
}

// readBundleKey gives the anchor that a key stands for, or puts the key with
// the tokens', or does neither.
func readBundleKey(raw json.RawMessage, tokens *KeySet) (*x509.Certificate, error) {
	var key webKey
	if err := json.Unmarshal(raw, &key); err != nil {
		return nil, fmt.Errorf("identity: bundle document: %w", err)
	}
	switch key.Use {
	case useX509:
		return key.anchor()
	case useJWT:
		return nil, tokens.add(raw)
	default:
		return nil, nil //nolint:nilnil // a key of another use is no error
	}
}

// anchor is the certificate that a key stands for.
func (k webKey) anchor() (*x509.Certificate, error) {
	if len(k.Chains) != 1 {
		return nil, errBundleKey
	}
	cert, err := x509.ParseCertificate(k.Chains[0])
	if err != nil {
		return nil, fmt.Errorf("identity: bundle document: %w", err)
	}
	own, err := webKeyOf(cert)
	if err != nil {
		return nil, err
	}
	if own.Type != k.Type || own.Curve != k.Curve || own.X != k.X || own.Y != k.Y || own.N != k.N || own.E != k.E {
		return nil, errBundleKey
	}
	return cert, nil
}

func webKeyOf(cert *x509.Certificate) (webKey, error) {
	key := webKey{Use: useX509, Chains: [][]byte{cert.Raw}}
	switch public := cert.PublicKey.(type) {
	case *ecdsa.PublicKey:
		point, err := public.Bytes() // uncompressed: 4, X, Y
		if err != nil {
			return webKey{}, fmt.Errorf("identity: anchor: %w", err)
		}
		half := (len(point) - 1) / 2
		key.Type, key.Curve = "EC", public.Params().Name
		key.X, key.Y = encode(point[1:1+half]), encode(point[1+half:])
	case *rsa.PublicKey:
		key.Type = "RSA"
		key.N, key.E = encode(public.N.Bytes()), encode(big.NewInt(int64(public.E)).Bytes())
	default:
		return webKey{}, errAnchorKey
	}
	return key, nil
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
