package ect

import (
	"cmp"
	"context"
	"crypto"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Defaults of a Verifier.
const (
	DefaultMaxAge      = 900 * time.Second // as the draft author's own code has it
	DefaultSkew        = 30 * time.Second
	DefaultMaxLifetime = 24 * time.Hour
)

// Purpose says what part a token plays, and so which checks make sense.
type Purpose int

// The purposes.
const (
	// Source: the ECT of this very message. All checks.
	Source Purpose = iota
	// Parent: an ancestor. It was meant for others, may have run out, and may be
	// named any number of times: no audience, time, body or replay check.
	Parent
	// Reply: the destination's ECT on its answer. All checks; a repetition is no
	// retry of a caller but a replay.
	Reply
)

// Check is what a token is verified against.
type Check struct {
	Purpose Purpose
	Peer    Peer   // the authenticated transport peer; zero: none
	Body    string // Hash of the message body
	// Unclaimed leaves out the last check of a Source, whether it was used before: the
	// caller asks Claim once the message is permitted, so that a refused message uses
	// up nothing and learns nothing of an earlier one (ruling R6).
	Unclaimed bool
	Holder    Identity // in whose share of the memory of used tokens it counts; empty: its issuer's
}

// VerifierDeps is what a Verifier needs.
type VerifierDeps struct {
	Keys        KeySource        // required
	Replay      ReplayCache      // required, and so is Audience; without both only a Parent can be verified
	Audience    []string         // our own ids
	MaxAge      time.Duration    // of iat; 0: DefaultMaxAge
	Skew        time.Duration    // tolerance for every clock comparison; 0: DefaultSkew
	MaxLifetime time.Duration    // of exp minus iat; 0: DefaultMaxLifetime
	MinLevel    Level            // L1 or L2; 0: L2. L3 is a matter of receipts, which no token shows
	Algorithms  []string         // of ES256 and EdDSA; empty: both
	Lenient     Lenient          // zero: nothing is overlooked
	MaxToken    int              // bytes; 0: the default of Limits.Token
	Now         func() time.Time // nil: time.Now

	// MinLevelOf is the minimum for what one authenticated peer presents; nil, or
	// no level as its answer: MinLevel. It is called with the peer of the connection,
	// never with a name out of a token, and not without a peer. If it returns more than
	// L2, all tokens are refused.
	MinLevelOf func(Identity) Level
}

// algorithms are those that we verify.
var algorithms = []string{jose.ES256, jose.EdDSA}

var errParentsOnly = errors.New("ect: this verifier has no replay cache and judges ancestors only")

// Verifier judges tokens. It is safe for concurrent use.
type Verifier struct {
	keys        KeySource
	replay      ReplayCache
	audience    []string
	maxAge      int64
	skew        int64
	maxLifetime int64
	minLevel    Level
	minLevelOf  func(Identity) Level
	algorithms  []string
	lenient     Lenient
	maxToken    int
	now         func() time.Time
	scanners    sync.Pool // of *jose.Scanner
	spaces      spaces
	headers     headers
}

// NewVerifier checks its dependencies.
func NewVerifier(d VerifierDeps) (*Verifier, error) {
	v := &Verifier{
		keys: d.Keys, replay: d.Replay, audience: slices.Clone(d.Audience),
		maxAge:      int64(cmp.Or(d.MaxAge, DefaultMaxAge) / time.Second),
		skew:        int64(cmp.Or(d.Skew, DefaultSkew) / time.Second),
		maxLifetime: int64(cmp.Or(d.MaxLifetime, DefaultMaxLifetime) / time.Second),
		minLevel:    cmp.Or(d.MinLevel, L2),
		minLevelOf:  d.MinLevelOf,
		algorithms:  slices.Clone(d.Algorithms),
		lenient:     d.Lenient,
		maxToken:    cmp.Or(d.MaxToken, defaultToken),
		now:         d.Now,
	}
	if v.now == nil {
		v.now = time.Now
	}
	if len(v.algorithms) == 0 {
		v.algorithms = algorithms
	}
	switch {
	case v.keys == nil:
		return nil, errors.New("ect: a verifier needs a key source")
	case (v.replay == nil) != (len(v.audience) == 0) || slices.Contains(v.audience, ""):
		return nil, errors.New("ect: a verifier needs a replay cache and its own ids, or neither")
	case v.maxAge < 0 || v.skew < 0 || v.maxLifetime < 0 || v.maxToken < 0:
		return nil, errors.New("ect: a verifier's bounds are not negative")
	case v.minLevel != L1 && v.minLevel != L2:
		return nil, errors.New("ect: a verifier's minimum level is L1 or L2")
	case slices.ContainsFunc(v.algorithms, func(alg string) bool { return !slices.Contains(algorithms, alg) }):
		return nil, errors.New("ect: a verifier's algorithms are ES256 and EdDSA")
	}
	return v, nil
}

// Verify judges one token in the order of the draft's verification list; no
// claim is acted on before the signature holds, except to find the key. Errors:
// *InvalidError, *MalformedError, *TooLargeError; for a Source that is used
// again with the same body the Verified comes with a *ReplayedError. Any other
// error is trouble of the key source or the replay cache.
func (v *Verifier) Verify(ctx context.Context, compact string, c Check) (Verified, error) {
	if c.Purpose != Parent && v.replay == nil {
		return Verified{}, errParentsOnly
	}
	p, err := v.parse(compact)
	if err != nil {
		return Verified{}, err
	}
	if err := v.authentic(ctx, p, c.Peer); err != nil {
		return Verified{}, err
	}
	if p.fault != nil {
		return Verified{}, p.invalid(p.fault.reason, p.fault.claim)
	}
	if err := v.acceptable(p, c); err != nil {
		return Verified{}, err
	}
	if c.Purpose == Parent || c.Purpose == Source && c.Unclaimed {
		return p.verified(), nil
	}
	t := p.verified()
	if err := v.claim(ctx, t, c); err != nil {
		if _, ok := errors.AsType[*ReplayedError](err); !ok {
			t = Verified{}
		}
		return t, err
	}
	return t, nil
}

// Claim makes the one use of a source that was verified with Check.Unclaimed.
// Errors: a *ReplayedError if it was used before with the same body, an
// *InvalidError if it was used with another one or may have been; any other error
// is trouble of the replay cache.
func (v *Verifier) Claim(ctx context.Context, t Verified, body string) error {
	if v.replay == nil {
		return errParentsOnly
	}
	return v.claim(ctx, t, Check{Purpose: Source, Body: body})
}

// parse reads a token with a scanner that has read others: what it has grown to
// is a quarter of what reading allocates.
func (v *Verifier) parse(compact string) (*parsed, error) {
	s, ok := v.scanners.Get().(*jose.Scanner)
	if !ok {
		s = &jose.Scanner{}
	}
	defer v.scanners.Put(s)
	return parse(s, &v.headers, compact, v.maxToken, v.lenient)
}

// authentic settles who made the token: level, type, algorithm, key,
// signature, and that the key's owner is the issuer.
func (v *Verifier) authentic(ctx context.Context, p *parsed, peer Peer) error {
	if p.level < v.required(peer) {
		return p.invalid(ReasonLevelTooLow, "")
	}
	if p.level == L1 {
		return p.selfAsserted(peer)
	}
	if f := p.headerFault(v.algorithms); f != nil {
		return p.invalid(f.reason, f.claim)
	}
	owner, err := v.resolve(ctx, p, peer)
	if err != nil {
		return err
	}
	if !jose.Fits(p.header.Algorithm, owner.Key) {
		return p.invalid(ReasonUnsupportedAlg, "alg")
	}
	if !v.genuine(p, owner.Key) {
		return p.invalid(ReasonInvalidSignature, "")
	}
	v.headers.learn(p)
	if p.fault == nil && (owner.ID == "" || owner.ID != p.claims.Issuer) {
		return p.invalid(ReasonIssuerMismatch, "iss")
	}
	return nil
}

func (v *Verifier) genuine(p *parsed, key crypto.PublicKey) bool {
	signed := v.spaces.of(p.signed)
	defer v.spaces.Put(signed)
	return jose.Verify(p.header.Algorithm, key, *signed, p.signature)
}

// required is the minimum level for what a peer presents: the token has no say.
func (v *Verifier) required(peer Peer) Level {
	if v.minLevelOf == nil || peer.ID == "" {
		return v.minLevel
	}
	if level := v.minLevelOf(peer.ID); level >= L1 {
		return level
	}
	return v.minLevel
}

// selfAsserted judges an unsigned token. The connection is the only proof of its
// issuer: it must have an authenticated peer, and an iss in the token must be that
// peer. Without an iss that peer is the issuer, so a peer cannot use up another's ids.
func (p *parsed) selfAsserted(peer Peer) error {
	if p.fault != nil {
		return nil // reported by the caller, as for a signed token
	}
	if p.claims.Act.needsSignature() {
		return p.invalid(ReasonLevelTooLow, "exec_act")
	}
	if peer.ID == "" || p.claims.Issuer != "" && p.claims.Issuer != peer.ID {
		return p.invalid(ReasonIssuerMismatch, "iss")
	}
	p.claims.Issuer = peer.ID
	return nil
}

func (v *Verifier) resolve(ctx context.Context, p *parsed, peer Peer) (Peer, error) {
	owner, err := v.keys.Resolve(ctx, KeyRequest{
		Header: p.header, Issuer: p.claims.Issuer, At: time.Unix(p.claims.IssuedAt, 0), Peer: peer,
	})
	if err == nil {
		return owner, nil
	}
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		return Peer{}, p.invalid(invalid.Reason, invalid.Claim)
	}
	return Peer{}, fmt.Errorf("ect: find key: %w", err)
}

// acceptable judges what an authentic token says.
func (v *Verifier) acceptable(p *parsed, c Check) error {
	if c.Purpose == Parent { // it may be as old as it likes, and have expired; but not live longer than any message's token
		if p.claims.Expires-p.claims.IssuedAt > v.maxLifetime {
			return p.invalid(ReasonLifetimeTooLong, "exp")
		}
		return nil
	}
	addressed := slices.ContainsFunc(p.claims.Audience, func(id string) bool { return slices.Contains(v.audience, id) })
	if !addressed && (p.level > L1 || len(p.claims.Audience) > 0) {
		return p.invalid(ReasonAudienceMismatch, "aud")
	}
	if reason, claim := v.untimely(p); reason != "" {
		return p.invalid(reason, claim)
	}
	// Without a body to compare, a hash cannot hold: an oversight must not pass.
	if out := p.claims.OutputHash; out != "" && !p.claims.Act.ofState() && subtle.ConstantTimeCompare([]byte(out), []byte(c.Body)) != 1 {
		return p.invalid(ReasonHashMismatch, "out_hash")
	}
	return nil
}

func (v *Verifier) untimely(p *parsed) (Reason, string) {
	now, c := v.now().Unix(), &p.claims
	switch {
	case now >= c.Expires+v.skew:
		return ReasonExpired, "exp"
	case c.IssuedAt > now+v.skew:
		return ReasonIssuedInFuture, "iat"
	case p.notBefore > now+v.skew:
		return ReasonIssuedInFuture, "nbf"
	case c.IssuedAt < now-v.maxAge-v.skew:
		return ReasonTooOld, "iat"
	case c.Expires-c.IssuedAt > v.maxLifetime:
		return ReasonLifetimeTooLong, "exp"
	}
	return "", ""
}

// claim is the last step: only a token that is good in every other way uses up its id.
func (v *Verifier) claim(ctx context.Context, t Verified, c Check) error {
	key := ReplayKey{Issuer: t.claims.Issuer, Workflow: t.claims.Workflow, ID: t.claims.ID}
	compact := v.spaces.of(t.compact)
	defer v.spaces.Put(compact)
	state, err := v.replay.Claim(ctx, key, ReplayUse{
		Token: Hash(*compact), Body: c.Body,
		Issued: time.Unix(t.claims.IssuedAt, 0), Until: v.useless(t), Holder: c.Holder,
	})
	switch {
	case err != nil:
		return fmt.Errorf("ect: replay cache: %w", err)
	case state == ReplayFresh:
		return nil
	case state == ReplaySame && c.Purpose == Source:
		return &ReplayedError{Key: key}
	case state == ReplayUnknown:
		return &InvalidError{Reason: ReasonTooOld, ID: t.claims.ID, Claim: "iat"}
	default:
		return &InvalidError{Reason: ReasonReplay, ID: t.claims.ID, Claim: "jti"}
	}
}

// useless is when a repetition would be refused without a memory of the first:
// expired, or too old, whichever comes first. Nothing need be remembered longer.
func (v *Verifier) useless(t Verified) time.Time {
	return time.Unix(min(t.claims.Expires, t.claims.IssuedAt+v.maxAge+1)+v.skew, 0)
}

// Verified is a token that was verified. Only Verify makes one.
type Verified struct {
	compact string
	claims  Claims
	header  Header
	level   Level
	dialect Dialect
}

// Claims is a copy of what the token says. The issuer of an unsigned token
// without iss is the peer who presented it.
func (v Verified) Claims() Claims { return v.claims.clone() }

// Header is a copy of the token's JOSE header; zero at L1.
func (v Verified) Header() Header { return v.header.clone() }

// Compact is the token's bytes as received.
func (v Verified) Compact() string { return v.compact }

// ID is the token's jti.
func (v Verified) ID() ID { return v.claims.ID }

// Issuer is who made the token, as in Claims.
func (v Verified) Issuer() Identity { return v.claims.Issuer }

// Workflow is the token's wid; empty: none.
func (v Verified) Workflow() string { return v.claims.Workflow }

// Audience is a copy of the token's aud.
func (v Verified) Audience() []string { return slices.Clone(v.claims.Audience) }

// Act is the token's exec_act.
func (v Verified) Act() Act { return v.claims.Act }

// Parents is a copy of the token's par.
func (v Verified) Parents() []ID { return slices.Clone(v.claims.Parents) }

// Extension is a text of the token's extension; false if there is none.
func (v Verified) Extension(key string) (string, bool) { return v.claims.Ext.String(key) }

// IssuedAt is the token's iat, seconds since 1970.
func (v Verified) IssuedAt() int64 { return v.claims.IssuedAt }

// Expires is the token's exp, likewise.
func (v Verified) Expires() int64 { return v.claims.Expires }

// Level is L1 for an unsigned token, else L2; L3 shows only in a ledger.
func (v Verified) Level() Level { return v.level }

// Dialect is the spelling it was read in.
func (v Verified) Dialect() Dialect { return v.dialect }

// LogValue prints the jti; a token is never logged.
func (v Verified) LogValue() slog.Value { return slog.StringValue(string(v.claims.ID)) }

// String prints the jti, so that no format verb prints the token.
func (v Verified) String() string { return string(v.claims.ID) }

// GoString does the same for %#v.
func (v Verified) GoString() string { return "ect.Verified(" + string(v.claims.ID) + ")" }

// Note is a signed message that is no ECT, such as a vote: a JWS in compact form with a type of its own, taken
// apart and not believed yet. Its payload names its issuer and time in words of its own.
type Note struct {
	Payload []byte // as it was signed

	compact string
	parsed  *parsed
}

// ParseNote takes a note of at most limit bytes apart. Its errors are *[MalformedError], and *[InvalidError] for
// another typ.
func ParseNote(compact, typ string, limit int) (Note, error) {
	if err := checkShape(compact, limit); err != nil {
		return Note{}, err
	}
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		return Note{}, &MalformedError{Reason: "not the three parts of a signed message"}
	}
	p := &parsed{compact: compact, level: L2}
	p.signed = compact[:len(parts[0])+1+len(parts[1])]
	err := p.openHeader(&jose.Scanner{}, nil, parts[0])
	var payload []byte
	if err == nil {
		payload, err = jose.Decode(parts[1], "payload")
	}
	if err == nil {
		p.signature, err = jose.Decode(parts[2], "signature")
	}
	switch {
	case err != nil:
		return Note{}, malformed(err)
	case jose.MediaType(p.header.Type) != typ:
		return Note{}, &InvalidError{Reason: ReasonWrongType, Claim: "typ"}
	case p.critical:
		return Note{}, &InvalidError{Reason: ReasonUnsupportedCritical, Claim: "crit"}
	}
	return Note{Payload: payload, compact: compact, parsed: p}, nil
}

// Compact is the note as it came.
func (n Note) Compact() string { return n.compact }

// Hash names the note: the hash of its compact form.
func (n Note) Hash() string { return Hash([]byte(n.compact)) }

// Authentic verifies that an issuer signed a note at a time, with a key that was its own then. Its errors are
// *[InvalidError]; any other is trouble of the key source.
func (v *Verifier) Authentic(ctx context.Context, n Note, issuer Identity, at time.Time) error {
	if n.parsed == nil {
		return ErrNoToken
	}
	p := *n.parsed
	p.claims = Claims{Issuer: issuer, IssuedAt: at.Unix()}
	if !slices.Contains(v.algorithms, p.header.Algorithm) {
		return p.invalid(ReasonUnsupportedAlg, "alg")
	}
	owner, err := v.resolve(ctx, &p, Peer{})
	if err != nil {
		return err
	}
	switch {
	case !jose.Fits(p.header.Algorithm, owner.Key):
		return p.invalid(ReasonUnsupportedAlg, "alg")
	case !v.genuine(&p, owner.Key):
		return p.invalid(ReasonInvalidSignature, "")
	case owner.ID == "" || owner.ID != issuer:
		return p.invalid(ReasonIssuerMismatch, "")
	}
	return nil
}
