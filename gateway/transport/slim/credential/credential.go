package credential

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// Provider mints our own tokens and signs with the key that they name. Safe
// for concurrent use.
type Provider interface {
	// Token is for one message.
	Token(ctx context.Context) (string, error)
	// Sign signs the bytes themselves, not a hash of them.
	Sign(message []byte) ([]byte, error)
}

// Verifier judges the tokens of others. Safe for concurrent use.
type Verifier interface {
	// Verify fails with *Error.
	Verify(ctx context.Context, token string) (Identity, error)
}

// Error says why a token or a signature is not accepted. It quotes nothing.
type Error struct {
	Reason string
	Err    error // for logs; nil: none
}

func (e *Error) Error() string { return "slim credential: " + e.Reason }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Identity is whom a token speaks for.
type Identity struct {
	Subject string           // as the verifier vouches for it
	Key     crypto.PublicKey // *ecdsa.PublicKey (P-256) or ed25519.PublicKey; nil: the token names none
}

// Check verifies a signature over the bytes of a message. Errors: *Error.
func (i Identity) Check(message, signature []byte) error {
	var valid bool
	switch key := i.Key.(type) {
	case *ecdsa.PublicKey:
		digest := sha256.Sum256(message)
		valid = ecdsa.VerifyASN1(key, digest[:], signature)
	case ed25519.PublicKey:
		valid = ed25519.Verify(key, message, signature)
	default:
		return &Error{Reason: "the token has no public key"}
	}
	if !valid {
		return &Error{Reason: "the signature does not fit the message"}
	}
	return nil
}

// Key signs control messages: ECDSA on P-256 over SHA-256.
type Key struct {
	private *ecdsa.PrivateKey
	public  string
}

// NewKey makes a key. It fails when the system has no randomness to give.
func NewKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	point, err := private.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	return &Key{private, base64.StdEncoding.EncodeToString(point)}, nil
}

// Public is the public key as tokens carry it: the uncompressed point, base64.
func (k *Key) Public() string { return k.public }

// Sign gives an ASN.1 signature.
func (k *Key) Sign(message []byte) ([]byte, error) {
	digest := sha256.Sum256(message)
	return ecdsa.SignASN1(rand.Reader, k.private, digest[:])
}

// ParsePublic reads a public key out of a token: Ed25519 with 32 bytes, a P-256
// point with 65 (or 33, compressed). Errors: *Error.
func ParsePublic(text string) (crypto.PublicKey, error) {
	if len(text) > 128 {
		return nil, &Error{Reason: "the public key is too long"}
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, &Error{Reason: "the public key is not base64", Err: err}
	}
	switch len(data) {
	case ed25519.PublicKeySize:
		return ed25519.PublicKey(data), nil
	case 33:
		return compressed(data)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), data)
	if err != nil {
		return nil, &Error{Reason: "the public key has an unknown type", Err: err}
	}
	return key, nil
}

func compressed(data []byte) (crypto.PublicKey, error) {
	x, y := elliptic.UnmarshalCompressed(elliptic.P256(), data)
	if x == nil {
		return nil, &Error{Reason: "the public key is not a point of its curve"}
	}
	point := make([]byte, 65)
	point[0] = 4
	x.FillBytes(point[1:33])
	y.FillBytes(point[33:])
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
}
