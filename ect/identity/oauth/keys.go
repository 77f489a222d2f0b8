package oauth

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// How keys are fetched.
const (
	keysWithin    = 5 * time.Second  // for one document
	maxMetadata   = 64 << 10         // bytes
	maxKeySet     = 256 << 10        // bytes
	againAfter    = 30 * time.Second // between two fetches while there are keys
	firstAgain    = 5 * time.Second  // between two fetches while there are none
	leastFresh    = time.Minute
	mostFresh     = 24 * time.Hour
	defaultFresh  = 10 * time.Minute // where the issuer says nothing
	wellKnown     = "/.well-known/"
	authorization = "oauth-authorization-server"
	openID        = "openid-configuration"
)

var (
	errMetadata = errors.New("oauth: the metadata of the issuer are not JSON, or name another issuer, or no https jwks_uri")
	errPath     = errors.New("oauth: the URL of the issuer cannot be read")
)

// keys are those of one issuer. Safe for concurrent use.
type keys struct {
	issuer Issuer
	exit   Exit
	now    func() time.Time

	mu      sync.Mutex
	set     *identity.KeySet // nil: none yet
	fetched time.Time        // when
	until   time.Time        // then it is fetched again
	tried   time.Time        // when the last fetch began, or ended
	failed  error            // of the last fetch
	flight  chan struct{}    // is closed when the fetch that is under way ends; nil: none is
}

// find is the key of a name. Its errors are *TokenError and *UnavailableError.
func (k *keys) find(ctx context.Context, alg, kid string) (crypto.PublicKey, error) {
	for {
		key, wait, err := k.look(alg, kid)
		switch {
		case key != nil || err != nil:
			return key, err
		case wait == nil:
			k.fetch(ctx)
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look is the key, or why there is none, or what to wait for; without any of these the caller
// fetches, and is the only one to do so.
func (k *keys) look(alg, kid string) (crypto.PublicKey, chan struct{}, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	usable := k.set != nil && now.Sub(k.fetched) < cmp.Or(k.issuer.MaxKeyAge, DefaultMaxKeyAge)
	var key crypto.PublicKey
	pause := firstAgain
	if usable {
		key, _ = k.set.Find(alg, kid)
		pause = againAfter
	}
	recent := !k.tried.IsZero() && now.Sub(k.tried) < pause
	switch {
	case key != nil && (now.Before(k.until) || recent || k.flight != nil):
		return key, nil, nil
	case k.flight != nil:
		return nil, k.flight, nil
	case !recent:
		k.tried, k.flight = now, make(chan struct{})
		return nil, nil, nil
	case usable && k.failed == nil:
		return nil, nil, k.issuer.refuse(UnknownKey, "kid")
	default:
		return nil, nil, &UnavailableError{Issuer: k.issuer.Name, RetryAfter: pause - now.Sub(k.tried), Err: k.failed}
	}
}

// knows reports whether a key of that name is there, without asking for it.
func (k *keys) knows(alg, kid string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set == nil {
		return false
	}
	_, known := k.set.Find(alg, kid)
	return known
}

// fetch asks the issuer for its keys.
func (k *keys) fetch(ctx context.Context) {
	set, fresh, err := k.ask(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	k.tried = now
	if k.failed = err; err == nil {
		k.set, k.fetched, k.until = set, now, now.Add(fresh)
	}
	close(k.flight)
	k.flight = nil
}

func (k *keys) ask(ctx context.Context) (*identity.KeySet, time.Duration, error) {
	at := k.issuer.JWKS
	if at == "" {
		var err error
		if at, err = k.discover(ctx); err != nil {
			return nil, 0, err
		}
	}
	body, header, err := k.exit.get(ctx, at, keysWithin, maxKeySet)
	if err != nil {
		return nil, 0, err
	}
	set, err := identity.ParseKeySet(body)
	return set, freshness(header), err
}

// discover reads where the keys are: from the metadata of RFC 8414, or where there are none from those
// of OpenID Connect Discovery.
func (k *keys) discover(ctx context.Context) (string, error) {
	places, err := metadataOf(k.issuer.URL)
	if err != nil {
		return "", err
	}
	for _, place := range places {
		body, _, failed := k.exit.get(ctx, place, keysWithin, maxMetadata)
		if err = failed; err != nil {
			if _, answered := errors.AsType[*statusError](err); answered {
				continue
			}
			return "", err
		}
		return k.read(body)
	}
	return "", err
}

// read takes metadata only if they name the issuer (RFC 8414 section 3.3).
func (k *keys) read(body []byte) (string, error) {
	metadata, err := jose.ParseClaims(&jose.Scanner{}, body, "metadata")
	if err != nil {
		return "", errMetadata
	}
	issuer, at := metadata.Text("issuer"), metadata.Text("jwks_uri")
	if metadata.Fault() != nil || issuer != k.issuer.URL || !secure(at) {
		return "", errMetadata
	}
	return at, nil
}

// metadataOf are the places where an issuer may have its metadata (RFC 8414 section 3.1, OpenID
// Connect Discovery section 4).
func metadataOf(issuer string) ([]string, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, errPath
	}
	origin, path := "https://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	return []string{origin + wellKnown + authorization + path, origin + path + wellKnown + openID}, nil
}

// freshness is how long an answer may be used without another request (RFC 9111 section 5.2.2),
// within our bounds.
func freshness(h http.Header) time.Duration {
	for directive := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return leastFresh
		case "max-age":
			seconds, err := strconv.ParseInt(strings.Trim(value, `"`), 10, 32)
			if err != nil {
				return leastFresh
			}
			return min(max(time.Duration(seconds)*time.Second, leastFresh), mostFresh)
		}
	}
	return defaultFresh
}
