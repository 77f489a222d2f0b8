package oauth_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/ect/identity/oauth/oauthtest"
)

// judged is one word for how a token is judged: "ok", or as refusal.
func (s *scene) judged(token string) string {
	s.t.Helper()
	_, ok, err := s.show(bearer(token))
	if ok && err == nil {
		return "ok"
	}
	return refusal(err)
}

func (s *scene) want(token, want string) {
	s.t.Helper()
	if got := s.judged(token); got != want {
		s.t.Errorf("got %q, want %q", got, want)
	}
}

func TestKeys_Rotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		first := s.a.Key
		s.want(s.a.Token(endpoint, nil), "ok")
		s.a.Key = oauthtest.NewKey(t, "key-2")
		s.a.Change(func(st *oauthtest.State) { st.Keys = []oauthtest.Key{s.a.Key} })
		s.want(s.a.Token(endpoint, nil), "unknown_key kid") // asked less than 30 s ago
		time.Sleep(31 * time.Second)
		s.want(s.a.Token(endpoint, nil), "ok")
		s.a.Key = first // rotated away
		s.want(s.a.Token(endpoint, nil), "unknown_key kid")
		if got := s.a.Requests(oauthtest.Keys); got != 2 {
			t.Errorf("asked %d times for keys, want 2", got)
		}
	})
}

// TestAttack_UnknownKidsAskTheIssuer: a stranger has the issuer asked for its keys by tokens with a new kid each.
func TestAttack_UnknownKidsAskTheIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.want(s.a.Token(endpoint, nil), "ok")
		for i := range 100 {
			time.Sleep(time.Second)
			s.want(s.a.Token(endpoint, func(h, _ object) { h["kid"] = fmt.Sprint(i) }), "unknown_key kid")
		}
		if got := s.a.Requests(oauthtest.Keys); got > 5 {
			t.Errorf("asked %d times for keys in 100 s", got)
		}
	})
}

// TestAttack_UnknownKeysOfASlowIssuer: strangers show tokens with unknown keys while the issuer hangs. Each of them waits 2 s at
// most, they have it called once, and a caller whose key is known does not wait.
func TestAttack_UnknownKeysOfASlowIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.want(s.a.Token(endpoint, nil), "ok")
		s.a.Change(func(st *oauthtest.State) { st.Delay = time.Hour })
		time.Sleep(31 * time.Second)
		known := s.a.Token(endpoint, nil)
		var strangers sync.WaitGroup
		for i := range 1000 {
			unknown := s.a.Token(endpoint, func(h, _ object) { h["kid"] = fmt.Sprint("unknown-", i) })
			strangers.Go(func() {
				began := time.Now()
				s.want(unknown, "unavailable")
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("a stranger waits %s", took)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		s.want(known, "ok")
		if took := time.Since(began); took != 0 {
			t.Errorf("a caller whose key is known waits %s", took)
		}
		strangers.Wait()
		if got := s.a.Requests(oauthtest.Metadata); got != 2 {
			t.Errorf("%d requests for metadata, want 2", got)
		}
	})
}

func TestKeys_Freshness(t *testing.T) {
	t.Parallel()
	for control, want := range map[string]time.Duration{
		"":                             10 * time.Minute,
		"max-age=0":                    time.Minute,
		"public, Max-Age=3600":         time.Hour,
		"max-age=99999999":             24 * time.Hour,
		"max-age=x":                    time.Minute,
		"no-store, max-age=3600":       time.Minute,
		"max-age=99999999999999999999": time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, nil)
			s.a.Change(func(st *oauthtest.State) { st.CacheControl = control })
			s.want(s.a.Token(endpoint, nil), "ok")
			time.Sleep(want*8/10 - time.Second)
			before := s.a.Requests(oauthtest.Keys)
			time.Sleep(2 * time.Second) // no caller asks
			if after := s.a.Requests(oauthtest.Keys); before != 1 || after != 2 {
				t.Errorf("%q: %d requests before 80 %% of %s and %d after", control, before, want, after)
			}
			s.want(s.a.Token(endpoint, nil), "ok")
		})
	}
}

func TestKeys_IssuerDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		down := func(now bool) { s.a.Change(func(st *oauthtest.State) { st.Down = now }) }
		down(true)
		s.want(s.a.Token(endpoint, nil), "unavailable") // no keys yet
		s.want(s.b.Token(endpoint, nil), "ok")          // of another issuer
		down(false)
		time.Sleep(6 * time.Second)
		s.want(s.a.Token(endpoint, nil), "ok")
		down(true)
		time.Sleep(23 * time.Hour)
		s.want(s.a.Token(endpoint, nil), "ok") // the keys that are known
		s.want(s.a.Token(endpoint, func(h, _ object) { h["kid"] = "x" }), "unavailable")
		time.Sleep(61 * time.Minute)
		s.want(s.a.Token(endpoint, nil), "unavailable") // they are too old
		down(false)
		time.Sleep(31 * time.Second)
		s.want(s.a.Token(endpoint, nil), "ok")
	})
}

func TestKeys_SlowIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.a.Change(func(st *oauthtest.State) { st.Delay = time.Hour })
		began := time.Now()
		_, _, err := s.show(bearer(s.a.Token(endpoint, nil)))
		away, ok := errors.AsType[*oauth.UnavailableError](err)
		if took := time.Since(began); !ok || took != 2*time.Second || away.RetryAfter < time.Second {
			t.Errorf("took %s: %v", took, err)
		}
	})
}

// TestKeys_KnownNeverWait: callers whose key is known do not wait while new ones are fetched from a slow issuer, neither for new keys
// nor for an unknown one. The latter caller waits 2 s at most, and what comes later serves the next one.
func TestKeys_KnownNeverWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		first := s.a.Token(endpoint, func(_, c object) { c["exp"] = time.Now().Unix() + 1e6 })
		s.want(first, "ok")
		s.a.Key = oauthtest.NewKey(t, "key-2")
		s.a.Change(func(st *oauthtest.State) { st.Keys, st.Delay = append(st.Keys, s.a.Key), 4*time.Second })
		second := s.a.Token(endpoint, func(_, c object) { c["exp"] = time.Now().Unix() + 1e6 })
		took := func(token, want string) time.Duration {
			t.Helper()
			began := time.Now()
			s.want(token, want)
			return time.Since(began)
		}
		time.Sleep(31 * time.Second)
		if waited := took(second, "unavailable"); waited != 2*time.Second {
			t.Errorf("an unknown key: waited %s", waited)
		}
		if waited := took(first, "ok"); waited != 0 {
			t.Errorf("a known key, while others are fetched: waited %s", waited)
		}
		time.Sleep(7 * time.Second) // the metadata and the keys come
		if waited := took(second, "ok"); waited != 0 {
			t.Errorf("the key that came in the background: waited %s", waited)
		}
		s.a.Change(func(st *oauthtest.State) { st.Delay = time.Hour })
		for range 200 {
			time.Sleep(7 * time.Minute)
			if waited := took(first, "ok"); waited != 0 {
				t.Fatalf("a known key, of a slow issuer: waited %s", waited)
			}
		}
	})
}

// TestKeys_RetiredWithoutCallers: a key that its issuer has taken out is forgotten, although no caller came in the meantime.
func TestKeys_RetiredWithoutCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		old := s.a.Token(endpoint, func(_, c object) { c["exp"] = time.Now().Unix() + 1e6 })
		s.want(old, "ok")
		s.a.Key = oauthtest.NewKey(t, "key-2")
		s.a.Change(func(st *oauthtest.State) { st.Keys = []oauthtest.Key{s.a.Key} })
		time.Sleep(11 * time.Minute)
		s.want(old, "unknown_key kid")
	})
}

// TestKeys_AskedForOnce: many callers at once wait for one request.
func TestKeys_AskedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.a.Change(func(st *oauthtest.State) { st.Delay = 900 * time.Millisecond })
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { s.want(s.a.Token(endpoint, nil), "ok") })
		}
		group.Wait()
		if got := s.a.Requests(oauthtest.Keys); got != 1 {
			t.Errorf("asked %d times for keys, want once", got)
		}
	})
}

// TestVerifier_Close: a fetch that is under way ends with the verifier, and no other begins. Known keys work on.
func TestVerifier_Close(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.want(s.a.Token(endpoint, nil), "ok")
		s.a.Change(func(st *oauthtest.State) { st.Delay = time.Hour })
		time.Sleep(8*time.Minute + time.Second)
		began := time.Now()
		s.verifier.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
		before := s.a.Requests(oauthtest.Metadata)
		s.want(s.a.Token(endpoint, nil), "ok")
		time.Sleep(time.Hour)
		s.want(s.a.Token(endpoint, func(h, _ object) { h["kid"] = "x" }), "unavailable")
		if after := s.a.Requests(oauthtest.Metadata); before != 2 || after != before {
			t.Errorf("%d requests before and %d after the end", before, after)
		}
	})
}

// TestVerifier_Use: issuers are added, removed and changed. The keys of one whose URLs are the same stay; a bad list
// changes nothing.
func TestVerifier_Use(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		use := func(want bool, list ...oauth.Issuer) {
			t.Helper()
			if err := s.verifier.Use(list); (err == nil) != want {
				t.Errorf("got %v", err)
			}
		}
		b := oauth.Issuer{Name: "b", URL: s.b.URL, JWKS: "https://b.example/keys", Identities: s.issuer.Identities}
		s.a.Opaque("opaque", s.a.Claims(endpoint))
		s.want(s.a.Token(endpoint, nil), "ok")
		s.want("opaque", "ok")
		use(true, s.issuer)
		s.want(s.a.Token(endpoint, nil), "ok")
		s.want("opaque", "ok")
		s.want(s.b.Token(endpoint, nil), "") // left to others
		changed := s.issuer
		changed.Identities = []oauth.Rule{{Group: "none", Path: "x"}}
		use(true, changed, b)
		s.want(s.a.Token(endpoint, nil), "identity")
		s.want("opaque", "identity")
		s.want(s.b.Token(endpoint, nil), "ok")
		use(false, s.issuer, oauth.Issuer{Name: "bad"})
		use(false, s.issuer, s.issuer)
		s.want(s.a.Token(endpoint, nil), "identity")
		if keys, tokens := s.a.Requests(oauthtest.Keys), s.a.Requests(oauthtest.Introspect); keys != 1 || tokens != 2 {
			t.Errorf("%d requests for keys and %d about the opaque token, want 1 and 2", keys, tokens)
		}
		changed = s.issuer
		changed.Introspection.Secret = "another"
		use(true, changed)
		s.want("opaque", "unavailable") // the new secret is used
		changed.JWKS, changed.Introspection = s.a.URL+oauthtest.Keys, oauth.Introspection{}
		use(true, changed)
		s.want("opaque", "")
		s.want(s.a.Token(endpoint, nil), "ok")
		if keys := s.a.Requests(oauthtest.Keys); keys != 2 {
			t.Errorf("%d requests for keys, want another one at another place", keys)
		}
		use(true)
		s.want(s.a.Token(endpoint, nil), "")
	})
}

// TestAttack_IssuerMetadata: metadata that name another issuer, or keys at another kind of place, are not followed.
func TestAttack_IssuerMetadata(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*oauthtest.State)
		want   string
	}{
		"as they should be":     {func(*oauthtest.State) {}, "ok"},
		"of OpenID alone":       {func(st *oauthtest.State) { st.OpenIDAlone = true }, "ok"},
		"of another issuer":     {func(st *oauthtest.State) { st.Metadata = func(m object) { m["issuer"] = "https://b.example/tenant" } }, "unavailable"},
		"without an issuer":     {func(st *oauthtest.State) { st.Metadata = func(m object) { delete(m, "issuer") } }, "unavailable"},
		"keys over http":        {func(st *oauthtest.State) { st.Metadata = func(m object) { m["jwks_uri"] = "http://a.example/keys" } }, "unavailable"},
		"keys in a file":        {func(st *oauthtest.State) { st.Metadata = func(m object) { m["jwks_uri"] = "file:///etc/passwd" } }, "unavailable"},
		"huge":                  {func(st *oauthtest.State) { st.Metadata = func(m object) { m["x"] = strings.Repeat("x", 65<<10) } }, "unavailable"},
		"no keys":               {func(st *oauthtest.State) { st.Keys = nil }, "unavailable"},
		"of OpenID, of another": {func(st *oauthtest.State) { st.OpenIDAlone, st.Metadata = true, func(m object) { m["issuer"] = "x" } }, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, nil)
			s.a.Change(tc.change)
			s.want(s.a.Token(endpoint, nil), tc.want)
		})
	}
}

func TestIntrospection_Answers(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	says := func(text string) func(*oauthtest.State) {
		return func(st *oauthtest.State) {
			st.Introspect = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
		}
	}
	good := fmt.Sprintf(`"sub":"alice","aud":%q,"exp":%d`, endpoint, now+300)
	for name, tc := range map[string]struct {
		change func(*oauthtest.State)
		want   string
	}{
		"active":              {says(`{"active":true,` + good + `}`), "ok"},
		"with its issuer":     {says(`{"active":true,"iss":"https://a.example","token_type":"bearer",` + good + `}`), "ok"},
		"inactive":            {says(`{"active":false,` + good + `}`), "not_active"},
		"of another issuer":   {says(`{"active":true,"iss":"https://b.example/tenant",` + good + `}`), "issuer_mismatch iss"},
		"of another kind":     {says(`{"active":true,"token_type":"DPoP",` + good + `}`), "sender_constrained token_type"},
		"bound":               {says(`{"active":true,"cnf":{},` + good + `}`), "sender_constrained cnf"},
		"for another agent":   {says(fmt.Sprintf(`{"active":true,"sub":"alice","aud":%q,"exp":%d}`, other, now+300)), "audience_mismatch aud"},
		"without aud":         {says(fmt.Sprintf(`{"active":true,"sub":"alice","exp":%d}`, now+300)), "missing_claim aud"},
		"without an end":      {says(fmt.Sprintf(`{"active":true,"sub":"alice","aud":%q}`, endpoint)), "missing_claim exp"},
		"expired":             {says(fmt.Sprintf(`{"active":true,"sub":"alice","aud":%q,"exp":%d}`, endpoint, now-61)), "expired exp"},
		"without sub":         {says(fmt.Sprintf(`{"active":true,"aud":%q,"exp":%d}`, endpoint, now+300)), "missing_claim sub"},
		"active in words":     {says(`{"active":"true",` + good + `}`), "unavailable"},
		"active twice":        {says(`{"active":false,"active":true,` + good + `}`), "unavailable"},
		"active is not there": {says(`{` + good + `}`), "unavailable"},
		"no JSON":             {says(`<html>`), "unavailable"},
		"huge":                {says(`{"active":true,"x":"` + strings.Repeat("x", 65<<10) + `",` + good + `}`), "unavailable"},
		"status 401": {func(st *oauthtest.State) {
			st.Introspect = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
		}, "unavailable"},
		"status 400": {func(st *oauthtest.State) {
			st.Introspect = func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"error":"invalid_request"}`, http.StatusBadRequest)
			}
		}, "malformed_token"},
		"status 400 without words": {func(st *oauthtest.State) {
			st.Introspect = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }
		}, "malformed_token"},
		"status 400 for the gateway": {func(st *oauthtest.State) {
			st.Introspect = func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"error":"invalid_client"}`, http.StatusBadRequest)
			}
		}, "unavailable"},
		"a redirect": {func(st *oauthtest.State) {
			st.Introspect = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://evil.example", http.StatusTemporaryRedirect)
			}
		}, "unavailable"},
		"down": {func(st *oauthtest.State) { st.Down = true }, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, nil)
			s.a.Change(tc.change)
			s.want("opaque-1", tc.want)
		})
	}
}

func TestIntrospection_Revoked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.a.Opaque("opaque-1", s.a.Claims(endpoint))
		s.want("opaque-1", "ok")
		s.a.Revoke("opaque-1")
		time.Sleep(29 * time.Second)
		s.want("opaque-1", "ok")
		time.Sleep(2 * time.Second)
		s.want("opaque-1", "not_active")
		if got := s.a.Requests(oauthtest.Introspect); got != 2 {
			t.Errorf("asked %d times, want 2", got)
		}
	})
}

// TestIntrospection_NeverPastTheEnd: what is cached ends with its token.
func TestIntrospection_NeverPastTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		claims := s.a.Claims(endpoint)
		claims["exp"] = time.Now().Unix() + 5
		s.a.Opaque("opaque-1", claims)
		s.want("opaque-1", "ok")
		s.a.Revoke("opaque-1")
		time.Sleep(6 * time.Second)
		s.want("opaque-1", "not_active")
	})
}

func TestIntrospection_Slow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.a.Opaque("opaque-1", s.a.Claims(endpoint))
		s.want("opaque-1", "ok")
		s.a.Change(func(st *oauthtest.State) { st.Delay = time.Hour })
		began := time.Now()
		s.want("opaque-2", "unavailable")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %s, want 2 s", took)
		}
		s.want("opaque-1", "ok") // it is known
	})
}

// TestAttack_FloodOfOpaqueTokens: a stranger shows random tokens while the server is slow. Others still have theirs judged,
// and what was judged before is good.
func TestAttack_FloodOfOpaqueTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.a.Change(func(st *oauthtest.State) { st.Delay = time.Second })
		from := func(source, token string) string {
			_, ok, err := s.verifier.Caller(t.Context(), credential.Request{
				Fields: http.Header{"Authorization": {bearer(token)}}.Values, Target: endpoint, Source: source,
			})
			if ok {
				return "ok"
			}
			return refusal(err)
		}
		s.a.Opaque("good", s.a.Claims(endpoint))
		var group sync.WaitGroup
		var busy atomic.Int64
		for i := range 1000 {
			group.Go(func() {
				if from("192.0.2.66", fmt.Sprint("random-", i)) == "unavailable" {
					busy.Add(1)
				}
			})
		}
		synctest.Wait()
		if got := from("192.0.2.1", "good"); got != "ok" {
			t.Errorf("another caller: got %q", got)
		}
		group.Wait()
		if requests := s.a.Requests(oauthtest.Introspect); requests > 9 || busy.Load() < 991 {
			t.Errorf("asked %d times, refused %d", requests, busy.Load())
		}
	})
}

// TestIntrospection_AskedOnce: many requests with one token ask once.
func TestIntrospection_AskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.a.Change(func(st *oauthtest.State) { st.Delay = time.Second })
		s.a.Opaque("good", s.a.Claims(endpoint))
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { s.want("good", "ok") })
		}
		group.Wait()
		if got := s.a.Requests(oauthtest.Introspect); got != 1 {
			t.Errorf("asked %d times, want once", got)
		}
	})
}

// TestIntrospection_BoundedMemory: tokens that are refused are forgotten, and displace none that is good.
func TestIntrospection_BoundedMemory(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	s.a.Opaque("good", s.a.Claims(endpoint))
	s.want("good", "ok")
	for i := range 5000 {
		s.want(fmt.Sprint("random-", i), "not_active")
	}
	before := s.a.Requests(oauthtest.Introspect)
	s.want("good", "ok")
	if after := s.a.Requests(oauthtest.Introspect); after != before {
		t.Error("the good token was asked about again")
	}
}

func FuzzToken_Caller(f *testing.F) {
	s := newScene(f, nil)
	f.Add(s.a.Token(endpoint, nil))
	f.Add(s.a.Token(other, nil))
	f.Add(s.b.Token(endpoint, func(_, c object) { c["iss"] = s.a.URL }))
	f.Add("opaque")
	f.Add("e30.e30.")
	for _, sub := range []string{"alice", "bob"} {
		token := s.a.Token(endpoint, func(_, c object) { c["sub"], c["exp"] = sub, 4102444800 })
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		who, ok, err := s.verifier.Caller(t.Context(), credential.Request{
			Fields: http.Header{"Authorization": {"Bearer " + token}}.Values, Target: endpoint,
		})
		if ok && (err != nil || !strings.HasPrefix(string(who.ID), oauth.Prefix(domain)+"a/users/") || who.Grant == nil) {
			t.Errorf("got %+v, %v", who, err)
		}
		if !ok && who.ID != "" {
			t.Errorf("refused, and is %s", who.ID)
		}
		if err != nil && len(token) > 20 && strings.Contains(err.Error(), token) {
			t.Errorf("the refusal quotes the token: %v", err)
		}
	})
}
