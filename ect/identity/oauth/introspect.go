package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// How opaque tokens are judged.
const (
	introspectWithin = 2 * time.Second
	maxIntrospection = 64 << 10 // bytes of an answer
	cachedFor        = 30 * time.Second
	maxCached        = 4096 // answers about active tokens, and as many about others
	maxAsking        = 64   // tokens asked about at once
	maxAskingOf      = 8    // of one source
	busyFor          = time.Second
)

var (
	errAnswer = errors.New("oauth: the answer of the introspection endpoint cannot be read")
	errBusy   = errors.New("oauth: too many opaque tokens are being asked about")
)

type tokenHash = [sha256.Size]byte

// introspector asks an issuer about opaque tokens (RFC 7662). Safe for concurrent use.
type introspector struct {
	issuer Issuer
	exit   Exit
	now    func() time.Time

	mu       sync.Mutex
	active   map[tokenHash]verdict
	refused  map[tokenHash]verdict // apart, so that tokens of strangers do not displace those that are good
	flights  map[tokenHash]*question
	asking   int
	askingOf map[string]int // by source
}

// verdict is what an issuer said of a token.
type verdict struct {
	access access
	err    error
	until  time.Time
}

// question is one that is under way, for all who wait for its verdict.
type question struct {
	done    chan struct{} // closed when there is a verdict
	verdict verdict
}

func newIntrospector(issuer Issuer, exit Exit, now func() time.Time) *introspector {
	return &introspector{
		issuer: issuer, exit: exit, now: now, active: map[tokenHash]verdict{}, refused: map[tokenHash]verdict{},
		flights: map[tokenHash]*question{}, askingOf: map[string]int{},
	}
}

// judge is what a token says. source is who shows it, for a fair share of the questions. Its errors
// are *TokenError and *UnavailableError.
func (in *introspector) judge(ctx context.Context, token, source string) (access, error) {
	sum := sha256.Sum256([]byte(token))
	found, flight, err := in.look(sum, source)
	switch {
	case err != nil:
		return access{}, err
	case found != nil:
		return found.access, found.err
	case flight == nil:
		v := in.ask(ctx, token)
		in.end(sum, source, v)
		return v.access, v.err
	}
	select {
	case <-flight.done:
		return flight.verdict.access, flight.verdict.err // whatever it is: one after the other they would wait for long
	case <-ctx.Done():
		return access{}, ctx.Err()
	}
}

// look is a verdict that is known, or what to wait for; without either the caller asks.
func (in *introspector) look(sum tokenHash, source string) (*verdict, *question, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := in.now()
	for _, known := range []map[tokenHash]verdict{in.active, in.refused} {
		if v, ok := known[sum]; ok && now.Before(v.until) {
			return &v, nil, nil
		}
	}
	if flight := in.flights[sum]; flight != nil {
		return nil, flight, nil
	}
	if in.asking >= maxAsking || in.askingOf[source] >= maxAskingOf {
		return nil, nil, &UnavailableError{Issuer: in.issuer.Name, RetryAfter: busyFor, Err: errBusy}
	}
	in.asking++
	in.askingOf[source]++
	in.flights[sum] = &question{done: make(chan struct{})}
	return nil, nil, nil
}

// end makes a verdict known, and lets others ask.
func (in *introspector) end(sum tokenHash, source string, v verdict) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.asking--
	if in.askingOf[source]--; in.askingOf[source] == 0 {
		delete(in.askingOf, source)
	}
	in.flights[sum].verdict = v
	close(in.flights[sum].done)
	delete(in.flights, sum)
	into := in.active
	switch _, refused := errors.AsType[*TokenError](v.err); {
	case refused:
		into = in.refused
	case v.err != nil:
		return // not known: the next one asks again
	}
	if len(into) >= maxCached {
		displace(into, in.now())
	}
	into[sum] = v
}

// displace forgets what has ended, or if nothing has, any one.
func displace(known map[tokenHash]verdict, now time.Time) {
	before := len(known)
	maps.DeleteFunc(known, func(_ tokenHash, v verdict) bool { return !now.Before(v.until) })
	for sum := range known {
		if len(known) == before {
			delete(known, sum)
		}
		return
	}
}

// ask asks the issuer.
func (in *introspector) ask(ctx context.Context, token string) verdict {
	now, to := in.now(), in.issuer.Introspection
	until := now.Add(cachedFor)
	unknown := func(err error) verdict {
		return verdict{err: &UnavailableError{Issuer: in.issuer.Name, RetryAfter: busyFor, Err: err}}
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}.Encode()
	request, err := http.NewRequest(http.MethodPost, to.URL, strings.NewReader(form))
	if err != nil {
		return unknown(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	// RFC 6749 section 2.3.1
	user := url.QueryEscape(to.ClientID) + ":" + url.QueryEscape(to.Secret)
	ctx = context.WithoutCancel(ctx) // others wait for the same answer
	body, _, err := in.exit.fetch(ctx, request, "Basic "+base64.StdEncoding.EncodeToString([]byte(user)), introspectWithin, maxIntrospection)
	if refusal, answered := errors.AsType[*statusError](err); answered && refusal.status == http.StatusBadRequest && !refusal.client {
		return verdict{err: in.issuer.refuse(Malformed, ""), until: until} // only the token differs between our requests
	}
	if err != nil {
		return unknown(err)
	}
	claims, err := jose.ParseClaims(&jose.Scanner{}, body, "introspection")
	if err != nil {
		return unknown(errAnswer)
	}
	switch string(claims.Raw("active")) {
	case "true":
	case "false":
		return verdict{err: in.issuer.refuse(Inactive, ""), until: until}
	default:
		return unknown(errAnswer)
	}
	a, err := in.issuer.introspected(claims, in.now())
	if err != nil {
		return verdict{err: err, until: until}
	}
	if a.until.Before(until) {
		until = a.until
	}
	return verdict{access: a, until: until}
}

// knows reports whether a token was active a short time ago, without asking.
func (in *introspector) knows(sum tokenHash) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	v, ok := in.active[sum]
	return ok && in.now().Before(v.until)
}
