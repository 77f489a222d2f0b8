package oauth_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/ect/identity/oauth/oauthtest"
)

// TestVerifier_RemembersForOneKey: a token that was verified before is judged again when its key has another value under the
// same name, and when it has ended.
func TestVerifier_RemembersForOneKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		day := func(_, claims object) { claims["exp"] = time.Now().Add(24 * time.Hour).Unix() }
		token, short := s.a.Token(endpoint, day), s.a.Token(endpoint, nil)
		for range 3 {
			s.want(token, "ok")
			s.want(short, "ok")
		}
		s.want(token[:len(token)-2]+"AA", "invalid_signature")
		time.Sleep(11 * time.Minute) // the keys are asked for again
		s.want(token, "ok")
		another := oauthtest.NewKey(t, s.a.Key.ID)
		s.a.Change(func(st *oauthtest.State) { st.Keys = []oauthtest.Key{another} })
		time.Sleep(11 * time.Minute)
		s.want(token, "invalid_signature")
	})
}

func BenchmarkVerifier_SameToken(b *testing.B) {
	s := newScene(b, nil)
	token := s.a.Token(endpoint, nil)
	fields := map[string][]string{"Authorization": {bearer(token)}}
	request := credential.Request{Fields: func(name string) []string { return fields[name] }, Target: endpoint}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := s.verifier.Caller(b.Context(), request); err != nil || !ok {
			b.Fatal(err)
		}
	}
}
