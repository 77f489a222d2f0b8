package jose

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// Why a key is refused.
var (
	// ErrKey: not a public key that we can use.
	ErrKey = errors.New("jose: unusable key")
	// ErrForeignKey: a key of a kind that we do not use. In a set it is passed
	// over (RFC 7517 section 5).
	ErrForeignKey = fmt.Errorf("%w: its type is not supported", ErrKey)
	// ErrSecret: a private or shared key, where only public ones belong.
	ErrSecret = fmt.Errorf("%w: it is secret", ErrKey)
)

// Key is a JSON Web Key (RFC 7517) that can verify signatures.
type Key struct {
	ID         string // kid; empty: absent
	Algorithm  string // alg; empty: absent
	Use        string // use; empty: absent
	Thumbprint string // RFC 7638; empty for kinds that do not sign execution context tokens
	Public     crypto.PublicKey
}

// Fits says whether the key may be used with an algorithm: it can, and it does
// not say otherwise.
func (k Key) Fits(alg string) bool {
	return (k.Algorithm == "" || k.Algorithm == alg) && Fits(alg, k.Public)
}

// curves are those of kty EC.
var curves = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}

// ParseKey reads one public key. Its errors match ErrKey.
func ParseKey(scan *Scanner, raw json.RawMessage) (Key, error) {
	members, err := scan.Members(raw, "key")
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if members["d"] != nil || members["k"] != nil { // private EC, OKP and RSA keys; shared ones
		return Key{}, ErrSecret
	}
	m := keyMembers{scan: scan, raw: members}
	key := Key{ID: m.text("kid"), Algorithm: m.text("alg"), Use: m.text("use")}
	if m.broken || !m.verifies() {
		return Key{}, ErrKey
	}
	if key.Public, err = m.public(); err != nil {
		return Key{}, err
	}
	if key.Algorithm != "" && Supported(key.Algorithm) && !Fits(key.Algorithm, key.Public) {
		return Key{}, fmt.Errorf("%w: it does not match its alg", ErrKey)
	}
	key.Thumbprint, _ = Thumbprint(key.Public)
	return key, nil
}

// ParseSet reads a JWK set of at most count keys. Keys of kinds we do not use
// are passed over; a secret among them, or a broken one, spoils the set.
func ParseSet(document []byte, count int) ([]Key, error) {
	scan := &Scanner{}
	members, err := scan.Members(document, "key set")
	if err != nil {
		return nil, err
	}
	var raw []json.RawMessage
	if list := members["keys"]; len(list) == 0 || list[0] != '[' || json.Unmarshal(list, &raw) != nil {
		return nil, &unreadable{reason: "key set has no keys"}
	}
	if len(raw) > count {
		return nil, &unreadable{Size, "key set has too many keys"}
	}
	var keys []Key
	for _, one := range raw {
		key, err := ParseKey(scan, one)
		switch {
		case errors.Is(err, ErrForeignKey):
		case err != nil:
			return nil, err
		default:
			keys = append(keys, key)
		}
	}
	return keys, nil
}

type keyMembers struct {
	scan   *Scanner
	raw    map[string]json.RawMessage
	broken bool
}

func (m *keyMembers) text(name string) string {
	text, ok := Unquote(m.raw[name])
	if m.raw[name] != nil && (!ok || text == "") {
		m.broken = true
	}
	return text
}

// bytes reads base64url; a coordinate has a fixed length, others have 0.
func (m *keyMembers) bytes(name string, size int) []byte {
	data, err := Decode(m.text(name), name)
	if err != nil || len(data) == 0 || size > 0 && len(data) != size {
		m.broken = true
		return nil
	}
	return data
}

// verifies is false if the key says that it is for something else (RFC 7517
// section 4.3).
func (m *keyMembers) verifies() bool {
	raw := m.raw["key_ops"]
	if raw == nil {
		return true
	}
	ops, ok := UnquoteAll[string](m.scan, raw)
	return ok && slices.Contains(ops, "verify")
}

func (m *keyMembers) public() (crypto.PublicKey, error) {
	switch kind := m.text("kty"); kind {
	case "EC":
		return m.elliptic()
	case "OKP":
		return m.edwards()
	case "RSA":
		return m.rsa()
	case "":
		return nil, ErrKey
	default:
		return nil, ErrForeignKey
	}
}

func (m *keyMembers) elliptic() (crypto.PublicKey, error) {
	curve, ok := curves[m.text("crv")]
	if !ok {
		return nil, ErrForeignKey
	}
	size := (curve.Params().BitSize + 7) / 8
	point := slices.Concat([]byte{4}, m.bytes("x", size), m.bytes("y", size))
	if m.broken {
		return nil, ErrKey
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, point) // refuses what is not on the curve
	if err != nil {
		return nil, ErrKey
	}
	return key, nil
}

func (m *keyMembers) edwards() (crypto.PublicKey, error) {
	if m.text("crv") != "Ed25519" {
		return nil, ErrForeignKey
	}
	key := ed25519.PublicKey(m.bytes("x", ed25519.PublicKeySize))
	if m.broken || !isEdwards(key) {
		return nil, ErrKey
	}
	return key, nil
}

func (m *keyMembers) rsa() (crypto.PublicKey, error) {
	n, e := new(big.Int).SetBytes(m.bytes("n", 0)), new(big.Int).SetBytes(m.bytes("e", 0))
	if m.broken || !e.IsInt64() || e.Int64() > 1<<31-1 {
		return nil, ErrKey
	}
	key := &rsa.PublicKey{N: n, E: int(e.Int64())}
	if !isRSA(key) {
		return nil, ErrKey
	}
	return key, nil
}

// Thumbprint is the JWK thumbprint (RFC 7638 with SHA-256, RFC 8037 appendix
// A.3) of a key that can sign execution context tokens; ErrKey for others.
func Thumbprint(key crypto.PublicKey) (string, error) {
	encode := base64.RawURLEncoding.EncodeToString
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if !Fits(ES256, key) {
			return "", ErrKey
		}
		point, err := key.Bytes() // 0x04 || X || Y
		if err != nil {
			return "", ErrKey
		}
		half := 1 + len(point)/2
		return Hash([]byte(`{"crv":"P-256","kty":"EC","x":"` + encode(point[1:half]) + `","y":"` + encode(point[half:]) + `"}`)), nil
	case ed25519.PublicKey:
		if !Fits(EdDSA, key) {
			return "", ErrKey
		}
		return Hash([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + encode(key) + `"}`)), nil
	default:
		return "", ErrKey
	}
}
