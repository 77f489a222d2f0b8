package jose

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// The algorithms of execution context tokens and of proofs.
const (
	ES256 = "ES256"
	EdDSA = "EdDSA"
)

// Bounds on RSA keys, bits. Larger ones only make us work.
const (
	minRSA = 2048
	maxRSA = 8192
)

// methods are the algorithms we can verify. All are asymmetric: none and
// anything with a shared secret cannot be asked for at all.
var methods = map[string]struct {
	jwt.SigningMethod
	fits func(crypto.PublicKey) bool
}{
	ES256:   {jwt.SigningMethodES256, onCurve(elliptic.P256())},
	"ES384": {jwt.SigningMethodES384, onCurve(elliptic.P384())},
	"ES512": {jwt.SigningMethodES512, onCurve(elliptic.P521())},
	EdDSA:   {jwt.SigningMethodEdDSA, isEdwards},
	"RS256": {jwt.SigningMethodRS256, isRSA},
	"RS384": {jwt.SigningMethodRS384, isRSA},
	"RS512": {jwt.SigningMethodRS512, isRSA},
	"PS256": {jwt.SigningMethodPS256, isRSA},
	"PS384": {jwt.SigningMethodPS384, isRSA},
	"PS512": {jwt.SigningMethodPS512, isRSA},
}

// Supported says whether we can verify an algorithm.
func Supported(alg string) bool {
	_, ok := methods[alg]
	return ok
}

// Fits says whether a key is of the kind that an algorithm demands. The
// signature library checks the type of a key but not its curve.
func Fits(alg string, key crypto.PublicKey) bool {
	m, ok := methods[alg]
	return ok && m.fits(key)
}

// Verify checks a signature; false also for a key that does not fit.
func Verify(alg string, key crypto.PublicKey, signed, signature []byte) bool {
	m, ok := methods[alg]
	if !ok || !m.fits(key) {
		return false
	}
	if public, ok := key.(*ecdsa.PublicKey); ok && alg == ES256 {
		return verifyES256(public, signed, signature)
	}
	return m.SigningMethod.Verify(string(signed), signature, key) == nil
}

// Sign makes a signature. The key must be one that AlgorithmOf knows.
func Sign(alg string, key crypto.Signer, input []byte) ([]byte, error) {
	m, ok := methods[alg]
	if !ok {
		return nil, fmt.Errorf("%w: it cannot sign", ErrKey)
	}
	if private, ok := key.(*ecdsa.PrivateKey); ok && alg == ES256 {
		return signES256(private, input)
	}
	return m.SigningMethod.Sign(string(input), key)
}

// ES256 is the algorithm of nearly every token: it is done here without the
// library, which copies the whole token to hash it. A signature is two numbers
// of 32 bytes, the most significant first (RFC 7518 section 3.4).

const half = 32

func verifyES256(key *ecdsa.PublicKey, signed, signature []byte) bool {
	if len(signature) != 2*half {
		return false
	}
	var space [2 + 2*(3+half)]byte
	der := append(space[:0], byte(asn1.SEQUENCE), 0)
	for _, number := range [...][]byte{signature[:half], signature[half:]} {
		if number = bytes.TrimLeft(number, "\x00"); len(number) == 0 {
			return false
		}
		negative := number[0] >> 7                                        // it would be, without a zero before it
		der = append(der, byte(asn1.INTEGER), negative+byte(len(number))) //nolint:gosec // 33 at most
		der = append(append(der, "\x00"[:negative]...), number...)
	}
	der[1] = byte(len(der) - 2) //nolint:gosec // 70 at most
	sum := sha256.Sum256(signed)
	return ecdsa.VerifyASN1(key, sum[:], der)
}

// signES256 signs deterministically, as RFC 6979 says and RFC 8725 section 3.2 asks
// for: no source of randomness can then betray the key. It takes a quarter less time,
// too (BenchmarkSign_ES256).
func signES256(key *ecdsa.PrivateKey, input []byte) ([]byte, error) {
	if !onCurve(elliptic.P256())(&key.PublicKey) {
		return nil, fmt.Errorf("%w: it cannot sign", ErrKey)
	}
	sum := sha256.Sum256(input)
	encoded, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var pair cryptobyte.String
	var r, s []byte // without leading zeros
	der, signature := cryptobyte.String(encoded), make([]byte, 2*half)
	if !der.ReadASN1(&pair, asn1.SEQUENCE) || !pair.ReadASN1Integer(&r) || !pair.ReadASN1Integer(&s) || len(r) > half || len(s) > half {
		return nil, fmt.Errorf("%w: its signature is not ECDSA", ErrKey)
	}
	copy(signature[half-len(r):], r)
	copy(signature[2*half-len(s):], s)
	return signature, nil
}

// AlgorithmOf is the one algorithm of execution context tokens that a key
// signs with: ES256 or EdDSA; empty for any other key.
func AlgorithmOf(key crypto.PublicKey) string {
	for _, alg := range [...]string{ES256, EdDSA} {
		if Fits(alg, key) {
			return alg
		}
	}
	return ""
}

// CheckSigner finds out whether a private key can sign execution context
// tokens: *ecdsa.PrivateKey on P-256, or ed25519.PrivateKey whose halves belong
// together (a wrong public half would betray the private one with the first
// signatures). Its error is ErrKey.
func CheckSigner(key crypto.Signer) (alg string, err error) {
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		if key != nil && Fits(ES256, &key.PublicKey) {
			return ES256, nil
		}
	case ed25519.PrivateKey:
		if len(key) == ed25519.PrivateKeySize && bytes.Equal(key, ed25519.NewKeyFromSeed(key.Seed())) {
			return EdDSA, nil
		}
	}
	return "", ErrKey
}

func onCurve(curve elliptic.Curve) func(crypto.PublicKey) bool {
	return func(key crypto.PublicKey) bool {
		public, ok := key.(*ecdsa.PublicKey)
		return ok && public != nil && public.Curve == curve
	}
}

func isRSA(key crypto.PublicKey) bool {
	public, ok := key.(*rsa.PublicKey)
	if !ok || public == nil || public.N == nil {
		return false
	}
	bits := public.N.BitLen()
	return bits >= minRSA && bits <= maxRSA && public.E > 2 && public.E&1 == 1
}

func isEdwards(key crypto.PublicKey) bool {
	public, ok := key.(ed25519.PublicKey)
	return ok && len(public) == ed25519.PublicKeySize && !smallOrder(public)
}

// smallOrder recognises the points for which any party can make signatures that
// verify: evidence under such a key would prove nothing. The sign is the last
// byte's first bit and makes no difference; the two last are other spellings
// of the first two.
func smallOrder(key ed25519.PublicKey) bool {
	var y [ed25519.PublicKeySize]byte
	copy(y[:], key)
	y[len(y)-1] &= 0x7f
	return slices.ContainsFunc(smallPoints, func(point []byte) bool { return bytes.Equal(y[:], point) })
}

// smallPoints are the y coordinates of the points of order 1, 2, 4 and 8 of
// edwards25519, little endian.
var smallPoints = [][]byte{
	little(0x00, 0x00, 0x00),
	little(0x01, 0x00, 0x00),
	little(0xec, 0xff, 0x7f), // p-1
	little(0xed, 0xff, 0x7f), // p
	little(0xee, 0xff, 0x7f), // p+1
	{
		0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
		0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
	},
	{
		0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
		0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
	},
}

// little is a coordinate whose middle bytes are all the same.
func little(first, middle, last byte) []byte {
	data := bytes.Repeat([]byte{middle}, ed25519.PublicKeySize)
	data[0], data[len(data)-1] = first, last
	return data
}
