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
	waitForKey    = 2 * time.Second  // a caller whose key is not known, at most
	maxMetadata   = 64 << 10         // bytes
	maxKeySet     = 256 << 10        // bytes
	againAfter    = 30 * time.Second // between two fetches while there are keys
	firstAgain    = 5 * time.Second  // between two fetches while there are none
	freshTenths   = 8                // of ten parts of their freshness have gone: keys are fetched again
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
	errSlow     = errors.New("oauth: the keys of the issuer have not come in time")
	errClosed   = errors.New("oauth: the keys of the issuer are not fetched any more")
)

// keys are those of one issuer. The first caller has them fetched; from then on they are fetched again in the
// background before they are stale. Safe for concurrent use; close ends it.
type keys struct {
	url, jwks string // of Issuer
	exit      Exit
	now       func() time.Time
	life      context.Context //nolint:containedctx // of fetches, which serve several callers
	stop      context.CancelFunc
	work      sync.WaitGroup

	mu      sync.Mutex
	set     *identity.KeySet // nil: none yet
	fetched time.Time        // when
	tried   time.Time        // when the last fetch began, or ended
	failed  error            // of the last fetch
	flight  chan struct{}    // is closed when the fetch that is under way ends; nil: none is
	next    *time.Timer      // has them fetched again; nil: there are none
	closed  bool
}

func newKeys(issuer Issuer, exit Exit, now func() time.Time) *keys {
	k := &keys{url: issuer.URL, jwks: issuer.JWKS, exit: exit, now: now}
	k.life, k.stop = context.WithCancel(context.Background())
	return k
}

// serve reports whether these are the keys of an issuer as it is described now.
func (k *keys) serve(issuer Issuer) bool { return k.url == issuer.URL && k.jwks == issuer.JWKS }

// close ends fetches and waits for them.
func (k *keys) close() {
	k.mu.Lock()
	k.closed = true
	if k.next != nil {
		k.next.Stop()
	}
	k.mu.Unlock()
	k.stop()
	k.work.Wait()
}

// find is the key of a name. A caller whose key is known does not wait. Its errors are *TokenError,
// *UnavailableError and the context's.
func (k *keys) find(ctx context.Context, of Issuer, alg, kid string) (crypto.PublicKey, error) {
	key, wait, err := k.look(of, alg, kid)
	if key != nil || err != nil {
		return key, err
	}
	timer := time.NewTimer(waitForKey)
	defer timer.Stop()
	for key == nil && err == nil {
		select {
		case <-wait:
			key, wait, err = k.look(of, alg, kid)
		case <-timer.C:
			return nil, &UnavailableError{Issuer: of.Name, RetryAfter: firstAgain, Err: errSlow}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return key, err
}

// look is the key, or why there is none, or what to wait for.
func (k *keys) look(of Issuer, alg, kid string) (crypto.PublicKey, chan struct{}, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	usable := k.set != nil && now.Sub(k.fetched) < cmp.Or(of.MaxKeyAge, DefaultMaxKeyAge)
	pause := firstAgain
	if usable {
		if key, known := k.set.Find(alg, kid); known {
			return key, nil, nil
		}
		pause = againAfter
	}
	recent := !k.tried.IsZero() && now.Sub(k.tried) < pause
	switch {
	case k.closed:
		return nil, nil, &UnavailableError{Issuer: of.Name, RetryAfter: firstAgain, Err: errClosed}
	case k.flight == nil && !recent:
		k.begin(now)
		return nil, k.flight, nil
	case k.flight != nil:
		return nil, k.flight, nil
	case usable && k.failed == nil:
		return nil, nil, of.refuse(UnknownKey, "kid")
	default:
		return nil, nil, &UnavailableError{Issuer: of.Name, RetryAfter: pause - now.Sub(k.tried), Err: k.failed}
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

// begin fetches the keys for all who wait. The mutex is locked.
func (k *keys) begin(now time.Time) {
	k.tried, k.flight = now, make(chan struct{})
	k.work.Go(func() { k.end(k.ask(k.life)) })
}

// end notes what a fetch came to, and when the next one is. While the issuer does not answer that is every 30 s,
// until its keys are older than any issuer's may be.
func (k *keys) end(set *identity.KeySet, fresh time.Duration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, again := k.now(), againAfter
	k.tried = now
	if k.failed = err; err == nil {
		k.set, k.fetched, again = set, now, fresh*freshTenths/10
	}
	close(k.flight)
	if k.flight = nil; k.next != nil {
		k.next.Stop()
	}
	if k.set != nil && now.Sub(k.fetched) < MostMaxKeyAge && !k.closed {
		k.next = time.AfterFunc(again, k.refresh)
	}
}

// refresh fetches the keys again.
func (k *keys) refresh() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight == nil && !k.closed {
		k.begin(k.now())
	}
}

func (k *keys) ask(ctx context.Context) (*identity.KeySet, time.Duration, error) {
	at := k.jwks
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
	places, err := metadataOf(k.url)
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
	if metadata.Fault() != nil || issuer != k.url || !secure(at) {
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
