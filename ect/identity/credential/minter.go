package credential

import (
	"cmp"
	"crypto"
	"encoding/base64"
	"errors"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// DefaultLifetime is exp minus iat of the tokens that a Minter makes.
const DefaultLifetime = 10 * time.Minute

// MinterDeps is what a Minter needs.
type MinterDeps struct {
	Key      crypto.Signer    // required: an *ecdsa.PrivateKey on P-256 (ES256) or an ed25519.PrivateKey (EdDSA)
	KeyID    string           // kid; empty: the key's RFC 7638 thumbprint
	Issuer   string           // iss; required
	Audience []string         // aud; required
	Lifetime time.Duration    // whole seconds; 0: DefaultLifetime
	Now      func() time.Time // nil: time.Now
}

// Minter makes JWTs that say who a member of a network is and which key its
// messages are signed with. Safe for concurrent use.
type Minter struct {
	deps   MinterDeps
	header string
	alg    string
}

// NewMinter checks its dependencies.
func NewMinter(d MinterDeps) (*Minter, error) {
	alg, err := jose.CheckSigner(d.Key)
	if err != nil {
		return nil, errors.New("credential: tokens are signed with ECDSA on P-256, or Ed25519")
	}
	if d.KeyID == "" {
		if d.KeyID, err = jose.Thumbprint(d.Key.Public()); err != nil {
			return nil, err
		}
	}
	d.Lifetime = cmp.Or(d.Lifetime, DefaultLifetime)
	switch {
	case d.Issuer == "" || len(d.Audience) == 0:
		return nil, errors.New("credential: no issuer or no audience for minted tokens: set both")
	case d.Lifetime < time.Second:
		return nil, errors.New("credential: the lifetime is too short, expected one second or more")
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	h := jose.Quote([]byte(`{"alg":`), alg)
	h = jose.Quote(append(h, `,"typ":"JWT","kid":`...), d.KeyID)
	return &Minter{deps: d, alg: alg, header: base64.RawURLEncoding.EncodeToString(append(h, '}')) + "."}, nil
}

// Mint makes a token for a subject that signs with a key of its own; publicKey
// is the claim "pubkey". It fails when the key cannot be used.
func (m *Minter) Mint(subject, publicKey string) (token string, expires time.Time, err error) {
	now := m.deps.Now()
	expires = now.Add(m.deps.Lifetime).Truncate(time.Second)
	c := jose.Quote([]byte(`{"iss":`), m.deps.Issuer)
	c = jose.Quote(append(c, `,"sub":`...), subject)
	c = jose.QuoteAll(append(c, `,"aud":`...), m.deps.Audience)
	c = strconv.AppendInt(append(c, `,"iat":`...), now.Unix(), 10)
	c = strconv.AppendInt(append(c, `,"nbf":`...), now.Unix(), 10)
	c = strconv.AppendInt(append(c, `,"exp":`...), expires.Unix(), 10)
	c = jose.Quote(append(c, `,"pubkey":`...), publicKey)
	signed := m.header + base64.RawURLEncoding.EncodeToString(append(c, '}'))
	signature, err := jose.Sign(m.alg, m.deps.Key, []byte(signed))
	if err != nil {
		return "", time.Time{}, err
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), expires, nil
}
