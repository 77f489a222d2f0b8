package ainp

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// ErrDID refuses a DID for which no Ed25519 key can be found.
var ErrDID = errors.New("ainp: the DID names no Ed25519 key that can be found")

const (
	documentLimit = 64 << 10         // bytes of a DID document
	keysLimit     = 16               // keys taken from one
	cacheLimit    = 1024             // DIDs
	cacheFor      = 5 * time.Minute  // where the document's server says nothing
	cacheMost     = time.Hour        // whatever it says
	again         = 10 * time.Second // between two looks at one document, whatever its server says of it
	fetchFor      = 5 * time.Second
	maxDID        = 512 // bytes
	fetchesAtOnce = 32
	fetchesByHost = 8 // at once, of these
)

// Keys finds the keys of DIDs. It is safe for concurrent use.
type Keys struct {
	client  transport.Client
	now     func() time.Time
	fetches *quota.Pool // at once, by host
	flight  singleflight.Group

	mu    sync.Mutex
	cache map[string]cached
}

// cached is what the latest look at a document gave.
type cached struct {
	keys  []ed25519.PublicKey // nil: it could never be fetched
	at    time.Time           // when it was looked at
	until time.Time           // how long the keys may be used
	err   error               // why the latest look failed; nil: it did not
}

// NewKeys makes a resolver. Without a client only did:key can be resolved; a
// nil clock is the real one.
func NewKeys(client transport.Client, now func() time.Time) *Keys {
	if now == nil {
		now = time.Now
	}
	fetches, err := quota.New(quota.Config{Resource: "lookups of DID documents", Total: fetchesAtOnce, PerHolder: fetchesByHost})
	if err != nil { // never: the bounds are constants
		client = nil
	}
	return &Keys{client: client, now: now, fetches: fetches, cache: map[string]cached{}}
}

// didWeb is the method of DIDs whose documents are fetched.
const didWeb = "did:web:"

// fetched reports whether a DID is resolved over the network.
func fetched(did string) bool { return strings.HasPrefix(did, didWeb) }

// Resolve lists the Ed25519 keys of a DID. It fails with ErrDID, with what the
// network said, or with a *quota.ExceededError. It fetches whatever did:web it is
// asked for: ask for those alone that an operator names.
func (k *Keys) Resolve(ctx context.Context, did string) ([]ed25519.PublicKey, error) {
	switch {
	case len(did) > maxDID:
		return nil, ErrDID
	case strings.HasPrefix(did, "did:key:"):
		key, ok := parseMultibase(strings.TrimPrefix(did, "did:key:"))
		if !ok {
			return nil, ErrDID
		}
		return []ed25519.PublicKey{key}, nil
	case fetched(did) && k.client != nil:
		return k.web(ctx, did)
	default:
		return nil, ErrDID
	}
}

func (k *Keys) web(ctx context.Context, did string) ([]ed25519.PublicKey, error) {
	if known, ok := k.known(did); ok && k.now().Before(known.until) {
		return known.keys, nil
	}
	return k.renew(ctx, did)
}

// Rotated looks whether the document of a did:web has changed since it was
// kept, because a signature does not hold under the keys that it had. It looks
// once in ten seconds at most; nil: there is nothing new.
func (k *Keys) Rotated(ctx context.Context, did string) []ed25519.PublicKey {
	known, ok := k.known(did)
	if !ok || k.now().Before(known.at.Add(again)) {
		return nil
	}
	keys, err := k.renew(ctx, did)
	if err != nil || slices.EqualFunc(keys, known.keys, func(a, b ed25519.PublicKey) bool { return a.Equal(b) }) {
		return nil
	}
	return keys
}

func (k *Keys) known(did string) (cached, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.cache[did]
	return known, ok
}

// renew looks at a document, once for all who want it at the same time. The
// caller that began it may go away: the others still get their answer. Whether it
// was found or not, it is not looked for again at once.
func (k *Keys) renew(ctx context.Context, did string) ([]ed25519.PublicKey, error) {
	found, err, _ := k.flight.Do(did, func() (any, error) {
		if known, ok := k.known(did); ok && k.now().Before(known.at.Add(again)) {
			return known.keys, known.err
		}
		return k.look(context.WithoutCancel(ctx), did)
	})
	keys, _ := found.([]ed25519.PublicKey)
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// look fetches a document and keeps what came of it.
func (k *Keys) look(ctx context.Context, did string) ([]ed25519.PublicKey, error) {
	address, ok := webAddress(did)
	if !ok {
		return nil, ErrDID
	}
	grant, err := k.fetches.Take(address.Host, 1)
	if err != nil {
		return nil, err
	}
	defer grant.Release()
	now := k.now()
	keys, fresh, err := k.fetch(ctx, did, address)
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.cache[did]
	if !ok && len(k.cache) >= cacheLimit {
		clear(k.cache) // all of them can be fetched again
	}
	if known.at, known.err = now, err; err == nil {
		known.keys, known.until = keys, now.Add(max(fresh, again))
	}
	k.cache[did] = known
	return keys, err
}

// freshness is how long a document may be kept (RFC 9111): what its server says,
// up to an hour. renew keeps each for ten seconds, so that messages, which cost
// their sender nothing, do not become as many requests to that server.
func freshness(h http.Header) time.Duration {
	age, _ := strconv.ParseUint(h.Get("Age"), 10, 31)
	for directive := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
			if err != nil || seconds <= age {
				return 0
			}
			return min(time.Duration(seconds-age)*time.Second, cacheMost)
		}
	}
	return cacheFor
}

func (k *Keys) fetch(ctx context.Context, did string, address *url.URL) ([]ed25519.PublicKey, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchFor)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, 0, ErrDID
	}
	request.Header.Set("Accept", "application/did+json, application/json")
	response, err := k.client.DoAs(request, "")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, documentLimit+1))
	if err == nil {
		err = ctx.Err() // a server that sees the deadline may end half an answer properly
	}
	if err != nil {
		return nil, 0, err
	}
	if response.StatusCode != http.StatusOK || len(body) > documentLimit {
		return nil, 0, ErrDID
	}
	keys, err := parseDocument(did, body)
	return keys, freshness(response.Header), err
}

// webAddress is where the document of a did:web is (did:web method, Read).
func webAddress(did string) (*url.URL, bool) {
	segments := strings.Split(strings.TrimPrefix(did, didWeb), ":")
	for i, segment := range segments {
		text, err := url.PathUnescape(segment)
		if err != nil || text == "" || text == "." || text == ".." || strings.ContainsAny(text, "/\\?#@% \t\r\n") {
			return nil, false
		}
		segments[i] = text
	}
	path := "/.well-known"
	if len(segments) > 1 {
		path = "/" + strings.Join(segments[1:], "/")
	}
	return &url.URL{Scheme: "https", Host: strings.ToLower(segments[0]), Path: path + "/did.json"}, true
}

type document struct {
	ID      string `json:"id"`
	Methods []struct {
		Multibase string `json:"publicKeyMultibase"`
		JWK       *struct {
			Type  string `json:"kty"`
			Curve string `json:"crv"`
			X     string `json:"x"`
		} `json:"publicKeyJwk"`
	} `json:"verificationMethod"`
}

func parseDocument(did string, body []byte) ([]ed25519.PublicKey, error) {
	var d document
	if json.Unmarshal(body, &d) != nil || d.ID != did {
		return nil, ErrDID
	}
	var keys []ed25519.PublicKey
	for _, method := range d.Methods {
		if len(keys) == keysLimit {
			break
		}
		if key, ok := parseMultibase(method.Multibase); ok {
			keys = append(keys, key)
		} else if jwk := method.JWK; jwk != nil && jwk.Type == "OKP" && jwk.Curve == "Ed25519" {
			if x, err := base64.RawURLEncoding.DecodeString(jwk.X); err == nil && len(x) == ed25519.PublicKeySize {
				keys = append(keys, x)
			}
		}
	}
	if len(keys) == 0 {
		return nil, ErrDID
	}
	return keys, nil
}

// The multicodec of an Ed25519 public key, and the alphabet of base58btc.
const (
	codecHigh = 0xed
	codecLow  = 0x01
	alphabet  = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
)

// parseMultibase reads an Ed25519 key in base58btc with its multicodec.
func parseMultibase(text string) (ed25519.PublicKey, bool) {
	const longest = 64 // characters; 34 bytes take 46 or 47
	digits, ok := strings.CutPrefix(text, "z")
	if !ok || digits == "" || len(digits) > longest {
		return nil, false
	}
	n, base := new(big.Int), big.NewInt(int64(len(alphabet)))
	for i := range len(digits) {
		digit := strings.IndexByte(alphabet, digits[i])
		if digit < 0 {
			return nil, false
		}
		n.Mul(n, base).Add(n, big.NewInt(int64(digit)))
	}
	raw := n.Bytes()
	if digits[0] == alphabet[0] || len(raw) != ed25519.PublicKeySize+2 || raw[0] != codecHigh || raw[1] != codecLow {
		return nil, false
	}
	return raw[2:], true
}

// KeyDID is the did:key of an Ed25519 key.
func KeyDID(key ed25519.PublicKey) string {
	n, base, digit := new(big.Int).SetBytes(append([]byte{codecHigh, codecLow}, key...)), big.NewInt(int64(len(alphabet))), new(big.Int)
	var digits []byte
	for n.Sign() > 0 {
		n.DivMod(n, base, digit)
		digits = append([]byte{alphabet[digit.Int64()]}, digits...)
	}
	return "did:key:z" + string(digits)
}
