package credential

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"
)

// Audience marks the audience of a SPIFFE JWT-SVID that carries the public key:
// the Workload API lets a workload choose audiences and nothing else.
const Audience = "slim-claims:"

// TokenRequest is what a token has to say of our key. A minter of JWTs puts
// PublicKey into the claim "pubkey"; the Workload API takes Audience as one
// more audience.
type TokenRequest struct {
	Subject   string // whose token it is, for who may choose that: one of our names
	PublicKey string // base64
	Audience  string
}

// TokenSource mints tokens: an issuer of JWTs, or the SPIFFE Workload API.
type TokenSource interface {
	// Mint gives a compact JWT and when it ends.
	Mint(ctx context.Context, request TokenRequest) (token string, expires time.Time, err error)
}

// TokenJudge decides about a compact JWT: signature, issuer, audience, times.
// It answers with the subject that it vouches for. The connection waits for it,
// with all that comes over it: keys are to be at hand.
type TokenJudge interface {
	Judge(ctx context.Context, token string) (subject string, err error)
}

// IssuedDeps is what an Issued needs.
type IssuedDeps struct {
	ID     string           // for TokenRequest.Subject
	Source TokenSource      // nil: no tokens of our own
	Judge  TokenJudge       // nil: no token is accepted
	Now    func() time.Time // nil: time.Now
}

// Issued uses tokens that its Source mints and its Judge verifies. Safe for concurrent
// use; one token serves until it is nearly over.
type Issued struct {
	deps IssuedDeps
	key  *Key

	minting sync.Mutex // judging does not wait for it
	token   string
	expires time.Time

	mu     sync.Mutex
	judged map[string]verdict
}

// verdict is a judgement that holds for a while: senders use one token for many
// messages.
type verdict struct {
	who   Identity
	until time.Time
}

// Bounds of the judgements that are remembered.
const (
	verdictsHold = 30 * time.Second
	verdictsKept = 1024
)

var (
	_ Provider = (*Issued)(nil)
	_ Verifier = (*Issued)(nil)
)

// renewBefore is how long before its end a token is replaced.
const renewBefore = 30 * time.Second

var errNothing = errors.New("slim credential: incomplete IssuedDeps: expected a Source or a Judge")

// NewIssued makes a key for control messages. It fails without source and
// judge, or when the system has no randomness to give.
func NewIssued(deps IssuedDeps) (*Issued, error) {
	if deps.Source == nil && deps.Judge == nil {
		return nil, errNothing
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	return &Issued{deps: deps, key: key, judged: map[string]verdict{}}, nil
}

// Token is the present token; a new one is minted when it is nearly over. If
// that fails it serves to its end. Errors: *Error, or the source's.
func (i *Issued) Token(ctx context.Context) (string, error) {
	i.minting.Lock()
	defer i.minting.Unlock()
	now := i.deps.Now()
	if i.token != "" && now.Before(i.expires.Add(-renewBefore)) {
		return i.token, nil
	}
	if i.deps.Source == nil {
		return "", &Error{Reason: "no Source of tokens is configured"}
	}
	request, err := i.request()
	if err != nil {
		return "", err
	}
	token, expires, err := i.deps.Source.Mint(ctx, request)
	switch {
	case err == nil:
		i.token, i.expires = token, expires
	case i.token == "" || !now.Before(i.expires):
		return "", err
	}
	return i.token, nil
}

func (i *Issued) request() (TokenRequest, error) {
	claims, err := json.Marshal(keyClaims{PublicKey: i.key.Public()})
	if err != nil {
		return TokenRequest{}, err
	}
	return TokenRequest{
		Subject:   i.deps.ID,
		PublicKey: i.key.Public(),
		Audience:  Audience + base64.StdEncoding.EncodeToString(claims),
	}, nil
}

// Sign signs with the key that the tokens name.
func (i *Issued) Sign(message []byte) ([]byte, error) { return i.key.Sign(message) }

// Verify has the token judged and reads its key. A token that was good is
// believed for another 30 s.
func (i *Issued) Verify(ctx context.Context, token string) (Identity, error) {
	if i.deps.Judge == nil {
		return Identity{}, &Error{Reason: "no Judge of tokens is configured"}
	}
	if len(token) > MaxToken {
		return Identity{}, &Error{Reason: "the token is too long"}
	}
	if who, ok := i.remembered(token); ok {
		return who, nil
	}
	subject, err := i.deps.Judge.Judge(ctx, token)
	if err != nil {
		return Identity{}, &Error{Reason: "the token is refused", Err: err}
	}
	key, err := issuedKey(token)
	if err != nil {
		return Identity{}, err
	}
	who := Identity{Subject: subject, Key: key}
	i.remember(token, who)
	return who, nil
}

func (i *Issued) remembered(token string) (Identity, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	v, ok := i.judged[token]
	return v.who, ok && i.deps.Now().Before(v.until)
}

func (i *Issued) remember(token string, who Identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.judged) >= verdictsKept { // few senders have so many tokens: begin again
		clear(i.judged)
	}
	i.judged[token] = verdict{who, i.deps.Now().Add(verdictsHold)}
}

// issuedKey finds the public key in a JWT that was judged already: in the claim
// "pubkey", in that of "custom_claims", or in an audience.
func issuedKey(token string) (crypto.PublicKey, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, &Error{Reason: "the token is not a compact JWT"}
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, &Error{Reason: "the token is not a compact JWT", Err: err}
	}
	claims, err := members(data)
	if err != nil {
		return nil, err
	}
	if key, err := namedKey(claims); key != nil || err != nil {
		return key, err
	}
	if custom, err := members(claims["custom_claims"]); err == nil {
		if key, err := namedKey(custom); key != nil || err != nil {
			return key, err
		}
	}
	return audienceKey(audiences(claims["aud"]))
}

// members reads an object by its exact names.
func members(data []byte) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, &Error{Reason: "the token's claims cannot be read", Err: err}
	}
	return all, nil
}

// namedKey is the key that claims name; nil: they name none.
func namedKey(claims map[string]json.RawMessage) (crypto.PublicKey, error) {
	raw, there := claims[claimKey]
	if !there {
		return nil, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, &Error{Reason: "the public key is not a string", Err: err}
	}
	if text == "" {
		return nil, nil
	}
	return ParsePublic(text)
}

// audiences reads "aud", which is one string or a list of them.
func audiences(raw json.RawMessage) []string {
	var list []string
	var one string
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	return nil
}

func audienceKey(list []string) (crypto.PublicKey, error) {
	for _, audience := range list {
		if encoded, ok := strings.CutPrefix(audience, Audience); ok {
			data, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return nil, &Error{Reason: "the claims in the audience are not base64", Err: err}
			}
			return keyIn(data)
		}
	}
	return nil, nil
}

// claimedKey reads the key out of a shared-secret token's claims.
func claimedKey(encoded string) (crypto.PublicKey, error) {
	data, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, &Error{Reason: "the token's claims are not base64", Err: err}
	}
	return keyIn(data)
}

func keyIn(data []byte) (crypto.PublicKey, error) {
	claims, err := members(data)
	if err != nil {
		return nil, err
	}
	return namedKey(claims)
}
