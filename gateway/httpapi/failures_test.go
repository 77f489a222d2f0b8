package httpapi_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

var errEmpty = errors.New("no requests are left")

// counter has so many requests left for each source.
type counter struct{ left map[string]int }

func (c *counter) MayAuthenticate(_ context.Context, address string) error {
	if c.left[address] == 0 {
		return errEmpty
	}
	return nil
}

func (c *counter) FailedAuthentication(_ context.Context, proved ect.Identity, address string) error {
	if proved != "" {
		address = string(proved)
	}
	if c.left[address] == 0 {
		return errEmpty
	}
	c.left[address]--
	return nil
}

func failures(t *testing.T, counter httpapi.FailureCounter, known func(credential.Request) bool) *httpapi.Failures {
	t.Helper()
	f, err := httpapi.NewFailures(counter, known)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Tokens of an address that failed too often are not judged any more, except one
// that was good before; another address, and callers without a token, pay nothing.
func TestFailures_TakeFromTheirAddress(t *testing.T) {
	t.Parallel()
	judged, broken := 0, errors.New("a broken token")
	source := &counter{left: map[string]int{"192.0.2.1": 3, "192.0.2.2": 3}}
	callers := httpapi.Callers{
		Failures: failures(t, source, nil),
		Authenticators: []httpapi.Authenticator{func(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
			tokens := r.Fields("Authorization")
			switch {
			case len(tokens) == 0:
				return identity.Caller{}, false, nil
			case tokens[0] == "good":
				return identity.Caller{Peer: ect.Peer{ID: "spiffe://a.test/x"}}, true, nil
			}
			judged++
			return identity.Caller{}, false, broken
		}},
	}
	identify := func(token, address string) error {
		fields := http.Header{}
		if token != "" {
			fields.Set("Authorization", token)
		}
		ctx, err := callers.Identify(t.Context(), nil, address+":1", credential.Request{Fields: fields.Values})
		if err != nil && !errors.Is(transport.Refusal(ctx), err) {
			t.Errorf("the refusal is %v, want %v", transport.Refusal(ctx), err)
		}
		return err
	}
	if err := identify("good", "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		want := broken
		if i >= 3 {
			want = errEmpty
		}
		if err := identify("bad "+strconv.Itoa(i), "192.0.2.1"); !errors.Is(err, want) {
			t.Errorf("broken token %d: %v, want %v", i, err, want)
		}
	}
	if judged != 3 {
		t.Errorf("%d broken tokens were judged, want 3", judged)
	}
	for name, err := range map[string]error{
		"a token that was good": identify("good", "192.0.2.1"), "no token": identify("", "192.0.2.1"), "another address": identify("good", "192.0.2.2"),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A connection that has proved an identity pays itself for a broken token beside it,
// and is never refused because of its address.
func TestFailures_TakeFromAProvedIdentity(t *testing.T) {
	t.Parallel()
	self := ecttest.NewParty(t, "spiffe://a.test/x")
	source := &counter{left: map[string]int{"192.0.2.1": 0, string(self.ID): 2}}
	callers := httpapi.Callers{
		Failures: failures(t, source, nil),
		Authenticators: []httpapi.Authenticator{func(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
			if len(r.Fields("Authorization")) > 0 {
				return identity.Caller{}, false, errors.New("a broken token")
			}
			return identity.Caller{}, false, nil
		}},
	}
	state := &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: self.Chain}
	for i := range 4 {
		_, err := callers.Identify(t.Context(), state, "192.0.2.1:1", credential.Request{Fields: http.Header{"Authorization": {"bad"}}.Values})
		if err == nil || errors.Is(err, errEmpty) != (i >= 2) {
			t.Errorf("broken token %d: %v", i, err)
		}
	}
	ctx, err := callers.Identify(t.Context(), state, "192.0.2.1:1", credential.Request{Fields: http.Header{}.Values})
	if err != nil || transport.CallerFrom(ctx).ID != self.ID {
		t.Errorf("the identity of the connection: %v", err)
	}
}

// As many good tokens as one likes are remembered within a bound.
func TestFailures_RememberSoManyTokens(t *testing.T) {
	t.Parallel()
	source := &counter{left: map[string]int{"192.0.2.1": 1}}
	callers := httpapi.Callers{
		Failures: failures(t, source, nil),
		Authenticators: []httpapi.Authenticator{func(context.Context, credential.Request) (identity.Caller, bool, error) {
			return identity.Caller{Peer: ect.Peer{ID: "spiffe://a.test/x"}}, true, nil
		}},
	}
	shows := func(n int) credential.Request {
		return credential.Request{Fields: http.Header{credential.IdentityField: {strconv.Itoa(n)}}.Values}
	}
	for n := range 5000 {
		if _, err := callers.Identify(t.Context(), nil, "192.0.2.1:1", shows(n)); err != nil {
			t.Fatal(err)
		}
	}
	source.left["192.0.2.1"] = 0
	known := 0
	for n := range 5000 {
		if _, err := callers.Identify(t.Context(), nil, "192.0.2.1:1", shows(n)); err == nil {
			known++
		}
	}
	if known != 4096 {
		t.Errorf("%d tokens are remembered, want 4096", known)
	}
	if _, err := callers.Identify(t.Context(), nil, "192.0.2.1:1", shows(4999)); err != nil {
		t.Errorf("the last one is forgotten: %v", err)
	}
}

// TestFailures_TokensOfTrustedKeysHaveAShare: failures of other tokens do not use it up; it is
// bounded for an address and for all; and beyond it the address pays, so that an address
// without failures is not refused.
func TestFailures_TokensOfTrustedKeysHaveAShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		judged, broken := 0, errors.New("a broken token")
		source := &counter{left: map[string]int{"192.0.2.1": 10, "192.0.2.2": 10, "192.0.2.3": 10, "192.0.2.4": 1}}
		token := func(r credential.Request) string { return r.Fields("Authorization")[0] }
		callers := httpapi.Callers{
			Failures: failures(t, source, func(r credential.Request) bool { return !strings.HasPrefix(token(r), "unknown") }),
			Authenticators: []httpapi.Authenticator{func(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
				judged++
				if strings.HasPrefix(token(r), "good") {
					return identity.Caller{Peer: ect.Peer{ID: "spiffe://a.test/x"}}, true, nil
				}
				return identity.Caller{}, false, broken
			}},
		}
		identify := func(token, address string) error {
			_, err := callers.Identify(t.Context(), nil, address+":1", credential.Request{Fields: http.Header{"Authorization": {token}}.Values})
			return err
		}
		flood := func(token, address string, want int) {
			t.Helper()
			judged = 0
			for n := range 2000 {
				_ = identify(token+strconv.Itoa(n), address)
			}
			if judged != want {
				t.Errorf("%d tokens of %s were judged, want %d", judged, address, want)
			}
		}
		flood("unknown ", "192.0.2.1", 10)
		for n := range 3 {
			if err := identify("good and new "+strconv.Itoa(n), "192.0.2.1"); err != nil {
				t.Errorf("a good token beside failures of other keys: %v", err)
			}
		}
		if err := identify("expired", "192.0.2.1"); !errors.Is(err, broken) {
			t.Errorf("a token of a trusted key that is no good: %v", err)
		}
		flood("forged ", "192.0.2.1", 399)         // one of 400 was the expired one
		flood("forged ", "192.0.2.2", 400+10)      // its own requests pay for the rest
		flood("forged ", "192.0.2.3", 1000-800+10) // all have used up theirs
		if err := identify("good and new", "192.0.2.3"); !errors.Is(err, errEmpty) {
			t.Errorf("an address that used up all: %v", err)
		}
		if err := identify("good and new", "192.0.2.4"); err != nil {
			t.Errorf("an address without failures: %v", err)
		}
		time.Sleep(time.Second)
		if err := identify("good and newer", "192.0.2.3"); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

// TestCallers_WithoutACertificate: the refusal names the certificates that are taken.
func TestCallers_WithoutACertificate(t *testing.T) {
	t.Parallel()
	ctx, err := httpapi.Callers{TrustDomain: "example.test"}.Identify(t.Context(), nil, "192.0.2.1:1", credential.Request{Fields: http.Header{}.Values})
	if err != nil {
		t.Fatal(err)
	}
	if refusal := transport.Refusal(ctx); refusal == nil || !strings.HasSuffix(refusal.Error(), ": show a client certificate of the trust domain example.test") {
		t.Errorf("got %v", refusal)
	}
}

// TestCallers_SubjectToken: only a token that has given the id of its caller, under the ids of tokens, may be exchanged.
func TestCallers_SubjectToken(t *testing.T) {
	t.Parallel()
	const under, access = "spiffe://example.test/oauth/", "urn:ietf:params:oauth:token-type:access_token"
	for name, tc := range map[string]struct {
		caller identity.Caller
		want   string
	}{
		"an access token":        {identity.Caller{Peer: ect.Peer{ID: under + "corp/ann"}, Grant: &identity.Grant{}}, "opaque"},
		"of another kind":        {identity.Caller{Peer: ect.Peer{ID: under + "corp/ann"}}, ""},
		"an id of another place": {identity.Caller{Peer: ect.Peer{ID: "spiffe://example.test/ann"}, Grant: &identity.Grant{}}, ""},
	} {
		who := httpapi.Callers{Reserved: under, Authenticators: []httpapi.Authenticator{
			func(context.Context, credential.Request) (identity.Caller, bool, error) { return tc.caller, true, nil },
		}}
		ctx, err := who.Identify(t.Context(), nil, "192.0.2.1:1", credential.Request{Fields: http.Header{"Authorization": {"Bearer opaque"}}.Values})
		token, kind, ok := transport.SubjectToken(ctx)
		if err != nil || token != tc.want || ok != (tc.want != "") || ok && kind != access {
			t.Errorf("%s: got %q of kind %q, %v", name, token, kind, err)
		}
	}
}
