package credential

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"hash"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Rules of shared-secret tokens.
const (
	// MinSecret is the shortest secret, bytes.
	MinSecret = 32
	// MaxToken bounds a token of any kind, bytes.
	MaxToken = 16 << 10

	validity = time.Hour
	skew     = 5 * time.Second
	nonce    = 12 // bytes
	fields   = 5
	suffix   = 8 // random characters after the base id
)

// SecretDeps is what a Secret needs.
type SecretDeps struct {
	ID     string           // whose tokens these are; no colon, no space
	Secret []byte           // what all members know; at least MinSecret bytes
	Now    func() time.Time // nil: time.Now
}

// Secret mints and verifies the tokens of all members that know one secret. Safe
// for concurrent use. A token may come more than once: replays are the
// business of message ids.
type Secret struct {
	id, claims string
	secret     []byte
	key        *Key
	now        func() time.Time
	macs       sync.Pool // of hash.Hash, keyed with the secret

	mu    sync.Mutex
	known map[string]crypto.PublicKey // by the claims that name it
}

// keysKept bounds the keys that are remembered: a member has one for its life.
const keysKept = 1024

var (
	_ Provider = (*Secret)(nil)
	_ Verifier = (*Secret)(nil)
)

// NewSecret makes a member with a key of its own. Errors: *Error, or the
// system's lack of randomness.
func NewSecret(deps SecretDeps) (*Secret, error) {
	if deps.ID == "" || strings.ContainsRune(deps.ID, ':') || strings.ContainsFunc(deps.ID, unicode.IsSpace) {
		return nil, &Error{Reason: "the id is empty or has a colon or a space: set one without"}
	}
	if len(deps.Secret) < MinSecret {
		return nil, &Error{Reason: "the secret is shorter than " + strconv.Itoa(MinSecret) + " bytes"}
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	claims, err := json.Marshal(keyClaims{PublicKey: key.Public()})
	if err != nil {
		return nil, err
	}
	s := &Secret{
		id: deps.ID + "_" + rand.Text()[:suffix], secret: deps.Secret, key: key, now: deps.Now,
		claims: base64.RawURLEncoding.EncodeToString(claims), known: map[string]crypto.PublicKey{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s, nil
}

// claimKey is where a token names its key.
const claimKey = "pubkey"

type keyClaims struct {
	PublicKey string `json:"pubkey"`
}

// Token mints a token for now.
func (s *Secret) Token(context.Context) (string, error) {
	var random [nonce]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	return s.mint(random[:]), nil
}

func (s *Secret) mint(random []byte) string {
	message := strings.Join([]string{
		s.id, strconv.FormatInt(s.now().Unix(), 10), base64.RawURLEncoding.EncodeToString(random), s.claims,
	}, ":")
	return message + ":" + base64.RawURLEncoding.EncodeToString(s.mac(message))
}

func (s *Secret) mac(message string) []byte {
	mac, pooled := s.macs.Get().(hash.Hash)
	if !pooled {
		mac = hmac.New(sha256.New, s.secret)
	}
	defer s.macs.Put(mac)
	mac.Reset()
	_, _ = io.WriteString(mac, message) // it never fails
	return mac.Sum(nil)
}

// Sign signs with the key that the tokens name.
func (s *Secret) Sign(message []byte) ([]byte, error) { return s.key.Sign(message) }

// Verify judges a token by the secret and the clock.
func (s *Secret) Verify(_ context.Context, token string) (Identity, error) {
	parts, err := s.genuine(token)
	if err != nil {
		return Identity{}, err
	}
	if err := s.timely(parts[1]); err != nil {
		return Identity{}, err
	}
	id := Identity{Subject: baseOf(parts[0])}
	if parts[3] == "" {
		return id, nil
	}
	id.Key, err = s.claimed(parts[3])
	return id, err
}

// claimed is the key in a token's claims, which are the same in all of a member's.
func (s *Secret) claimed(claims string) (crypto.PublicKey, error) {
	s.mu.Lock()
	key, ok := s.known[claims]
	s.mu.Unlock()
	if ok {
		return key, nil
	}
	key, err := claimedKey(claims)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= keysKept {
		clear(s.known)
	}
	s.known[claims] = key
	return key, nil
}

// genuine checks the tag before anything else is looked at.
func (s *Secret) genuine(token string) ([]string, error) {
	end := strings.LastIndexByte(token, ':')
	if end < 0 || len(token) > MaxToken {
		return nil, &Error{Reason: "not a shared-secret token"}
	}
	tag, err := base64.RawURLEncoding.DecodeString(token[end+1:])
	if err != nil || !hmac.Equal(tag, s.mac(token[:end])) {
		return nil, &Error{Reason: "the token was not made with the secret", Err: err}
	}
	parts := strings.Split(token, ":")
	if len(parts) != fields {
		return nil, &Error{Reason: "not a shared-secret token"}
	}
	return parts, nil
}

func (s *Secret) timely(seconds string) error {
	made, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return &Error{Reason: "the token's time is not a number", Err: err}
	}
	now := s.now()
	switch at := time.Unix(made, 0); {
	case at.After(now.Add(skew)):
		return &Error{Reason: "the token is from the future: check the clocks"}
	case at.Before(now.Add(-validity)):
		return &Error{Reason: "the token is too old: check the clocks"}
	default:
		return nil
	}
}

// baseOf is the id without its random end.
func baseOf(id string) string {
	if cut := len(id) - suffix - 1; cut > 0 && id[cut] == '_' {
		return id[:cut]
	}
	return id
}
