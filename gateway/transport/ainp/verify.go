package ainp

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Skew is how far clocks may differ (draft-ainp-protocol-00).
const Skew = time.Minute

// MaxTTL is the longest ttl that is taken: an id must be remembered for it.
const MaxTTL = time.Hour

// Replays remembers which messages have been taken.
type Replays interface {
	// First reports whether key, of a message sent at that time, is new, and
	// keeps it until then. A store that cannot tell answers with an error.
	First(ctx context.Context, key string, at, until time.Time) (bool, error)
}

// Memory is a Replays for one process. When it is full of what may still come
// again it refuses, rather than forgets.
type Memory struct {
	now  func() time.Time
	size int
	mu   sync.Mutex
	seen map[string]time.Time
}

// errFull refuses a message because Memory holds as many ids as it may.
var errFull = errors.New("ainp: replay memory is full: send the message again later")

// NewMemory makes a Memory for so many ids; a nil clock is the real one.
func NewMemory(size int, now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{now: now, size: size, seen: map[string]time.Time{}}
}

// First is Replays.First.
func (m *Memory) First(_ context.Context, key string, _, until time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if expiry, ok := m.seen[key]; ok && now.Before(expiry) {
		return false, nil
	}
	if len(m.seen) >= m.size {
		maps.DeleteFunc(m.seen, func(_ string, end time.Time) bool { return !now.Before(end) })
	}
	if len(m.seen) >= m.size {
		return false, errFull
	}
	m.seen[key] = until
	return true, nil
}

// verified is an envelope whose signature holds.
type verified struct {
	ainp.Head
	profile ainp.SigProfile
	text    ainp.Text // what was signed
}

// verifier judges envelopes.
type verifier struct {
	keys *Keys
	now  func() time.Time
	// named says whether the operator names a DID. The document of a did:web is
	// fetched for those alone.
	named func(did string) bool
}

// The refusals, with the codes of AINP.
func unsigned() error {
	return &canonical.Error{Code: canonical.CodeUnauthenticated, Message: "the signature does not hold"}
}

func stale(message string) error {
	return &canonical.Error{Code: canonical.CodeInvalidRequest, Message: message}
}

func unaddressed() error {
	return &canonical.Error{
		Code:    canonical.CodeForbidden,
		Message: "the message names no recipient: set to_did to this gateway or its agent, or connect with the sender's certificate",
	}
}

func repeated() error {
	return &canonical.Error{
		Code: canonical.CodeInvalidRequest, Message: "this message was taken before",
		Native: &canonical.NativeError{Binding: ainp.Binding, Data: json.RawMessage(`"DUPLICATE_INTENT"`)},
	}
}

// read takes a message apart as far as it is judged by. It fails with a
// *canonical.Error.
func read(body []byte) (e ainp.Envelope, head ainp.Head, err error) {
	if e, err = ainp.Open(body); err == nil {
		head, err = e.Head()
	}
	if err != nil {
		err = stale("not an envelope")
	}
	return e, head, err
}

// verify judges freshness and signature. It fails with a *canonical.Error, or a
// *quota.ExceededError while too many documents are being fetched.
func (v *verifier) verify(ctx context.Context, e ainp.Envelope, head ainp.Head) (verified, error) {
	out := verified{Head: head}
	if err := out.fresh(v.now()); err != nil {
		return out, err
	}
	sig, err := base64.StdEncoding.DecodeString(out.Sig)
	if err != nil || len(sig) != ed25519.SignatureSize {
		return out, unsigned()
	}
	if fetched(out.From) && !v.named(out.From) {
		return out, unsigned()
	}
	keys, err := v.keys.Resolve(ctx, out.From)
	if exceeded, ok := errors.AsType[*quota.ExceededError](err); ok {
		return out, exceeded
	}
	if err != nil {
		return out, unsigned()
	}
	if out.text, err = e.Text(); err != nil {
		return out, stale("not an envelope")
	}
	for ; len(keys) > 0; keys = v.keys.Rotated(ctx, out.From) {
		if out.profile = holds(out.text, sig, keys); out.profile != "" {
			return out, nil
		}
	}
	return out, unsigned()
}

// holds finds the reading of the draft under which a signature is one of the
// keys'; empty: there is none.
func holds(text ainp.Text, sig []byte, keys []ed25519.PublicKey) ainp.SigProfile {
	for _, profile := range []ainp.SigProfile{ainp.SigDraft, ainp.SigRaw} {
		input := text.SigningInput(profile)
		for _, key := range keys {
			if ed25519.Verify(key, input, sig) {
				return profile
			}
		}
	}
	return ""
}

func (v verified) fresh(now time.Time) error {
	switch {
	case v.TTL > MaxTTL:
		return stale("the ttl is out of range")
	case v.At.After(now.Add(Skew)):
		return stale("the message is from the future")
	case now.After(v.until()):
		return stale("the message has expired")
	default:
		return nil
	}
}

// until is how long the message can still be taken.
func (v verified) until() time.Time { return v.At.Add(v.TTL + Skew) }

// key names a message among all of them.
func (v verified) key() string { return v.From + "\x00" + v.ID }
