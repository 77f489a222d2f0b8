package ect_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

func TestVerifier_RefusesVectors(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	vectors := ecttest.Vectors(t, s.Situation)
	if len(vectors) < 45 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, vector := range vectors {
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			d := s.deps()
			keys := ecttest.KeysOf(s.From, s.Other)
			d.Keys = keys
			for purpose, name := range map[ect.Purpose]string{ect.Source: "source", ect.Reply: "reply", ect.Parent: "parent"} {
				check := s.source()
				check.Purpose = purpose
				v, err := verifierOf(t, d).Verify(t.Context(), vector.Compact, check)
				if purpose == ect.Parent && vector.Content {
					if err != nil {
						t.Errorf("as a parent: got %v, want it accepted", err)
					}
					continue
				}
				if v.ID() != "" || v.Compact() != "" {
					t.Errorf("as a %s: a refused token was handed out", name)
				}
				judge(t, vector, err)
			}
			if vector.Early && keys.Lookups() > 0 {
				t.Error("a key was looked up")
			}
		})
	}
}

func judge(t *testing.T, vector ecttest.Vector, err error) {
	t.Helper()
	switch {
	case vector.Malformed:
		if _, ok := errors.AsType[*ect.MalformedError](err); !ok {
			t.Errorf("got %v, want malformed", err)
		}
	case vector.TooLarge:
		if large, ok := errors.AsType[*ect.TooLargeError](err); !ok || large.Limit != 8<<10 {
			t.Errorf("got %v, want too large", err)
		}
	default:
		wantReason(t, err, vector.Reason)
	}
}

func TestVerifier_AcceptsValidTokens(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	now := s.Now.Unix()
	a, b := `"550e8400-e29b-41d4-a716-446655440000"`, `"6BA7B810-9DAD-11D1-80B4-00C04FD430C8"`
	for name, r := range map[string]ecttest.Recipe{
		"plain":                      {},
		"the older typ":              {Header: ecttest.Raw{"typ": `"wimse-exec+jwt"`}},
		"typ in capitals":            {Header: ecttest.Raw{"typ": `"EXEC+JWT"`}},
		"typ as a media type":        {Header: ecttest.Raw{"typ": `"application/exec+jwt"`}},
		"typ as an odd media type":   {Header: ecttest.Raw{"typ": `"Application/WIMSE-exec+jwt"`}},
		"no kid":                     {Header: ecttest.Raw{"kid": ``}},
		"no x5c":                     {Header: ecttest.Raw{"x5c": ``}},
		"header parameters unknown":  {Header: ecttest.Raw{"jku": `"https://evil.example"`, "jwk": `{}`, "zip": `"DEF"`}},
		"claims unknown":             {Payload: ecttest.Raw{"sub": `"x"`, "target": `{"a":[1]}`, "ISS": `"x"`, "Par": `["x"]`}},
		"audience as a string":       {Payload: ecttest.Raw{"aud": `"` + self + `"`}},
		"one audience of many":       {Payload: ecttest.Raw{"aud": `["x","https://gw.example.com"]`}},
		"parents":                    {Payload: ecttest.Raw{"par": `[` + a + `,` + b + `]`}},
		"both spellings alike":       {Payload: ecttest.Raw{"par": `[` + a + `]`, "pred": ` [ ` + a + ` ] `, "ext": `{"k":1.0,"l":"é"}`, "ect_ext": `{ "l": "\u00e9", "k": 1.0 }`}},
		"ext empty":                  {Payload: ecttest.Raw{"ext": `{}`}},
		"ext at its depth":           {Payload: ecttest.Raw{"ext": `{"1":{"2":{"3":{"4":"[[[[{{{{"}}}}`}},
		"ext at its size":            {Payload: ecttest.Raw{"ext": `{"k":"` + strings.Repeat("x", ect.MaxExtSize-8) + `"}`}},
		"names with escapes":         {RawPayload: `{"iss":"spiffe://example.com/agent/a","\u0061ud":"` + self + `","iat":1772064000,"exp":1772064600,"jti":` + a + `,"exec_act":"x","par":[]}`},
		"no workflow, no hashes":     {Payload: ecttest.Raw{"wid": ``, "out_hash": ``}},
		"valid from now":             {Payload: ecttest.Raw{"nbf": "1772064000"}},
		"a clock that is slow":       {Claims: at(now-930, now+600)},
		"a clock that is fast":       {Claims: at(now+30, now+600)},
		"in its last second of skew": {Claims: at(now-600, now-29)},
		"as long-lived as may be":    {Claims: at(now, now+86400)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.Claims()
			if r.Claims.IssuedAt != 0 {
				c.IssuedAt, c.Expires = r.Claims.IssuedAt, r.Claims.Expires
			}
			r.Claims = c
			d := s.deps()
			d.Replay = ecttest.NewReplay()
			v, err := verifierOf(t, d).Verify(t.Context(), ecttest.Mint(t, s.From, r), s.source())
			if err != nil {
				t.Fatal(err)
			}
			if v.Level() != ect.L2 || v.Claims().Issuer != s.From.ID {
				t.Errorf("got level %d of %s", v.Level(), v.Claims().Issuer)
			}
		})
	}
}

func at(iat, exp int64) ect.Claims { return ect.Claims{IssuedAt: iat, Expires: exp} }

func TestVerified_HasTheClaimsOfTheToken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	want := s.Claims()
	want.Issuer, want.ID, want.Expires = s.From.ID, ect.NewID(), s.Now.Unix()+600
	want.Parents = []ect.ID{ect.NewID(), ect.NewID()}
	want.InputHash = ect.Hash([]byte("in"))
	want.Ext = ect.Ext{"k": []byte(`12345678901234567890.10`), "l": []byte(`{"m":[null]}`), "n": []byte(`"\u2028"`)}
	compact := ecttest.Mint(t, s.From, ecttest.Recipe{Claims: want})
	v, err := s.verifier(t).Verify(t.Context(), compact, s.source())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, v.Claims()); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	text, isText := v.Extension("n")
	if _, number := v.Extension("k"); v.Act() != want.Act || !isText || text != "\u2028" || number {
		t.Errorf("got act %q, extension %q", v.Act(), text)
	}
	v.Parents()[0] = "changed"
	if diff := cmp.Diff(want.Parents, v.Parents()); diff != "" {
		t.Errorf("parents (-want +got):\n%s", diff)
	}
	h := v.Header()
	if v.Compact() != compact || h.KeyID != s.From.KeyID || h.Type != "exec+jwt" || h.Algorithm != "ES256" {
		t.Errorf("got header %+v", h)
	}
	if diff := cmp.Diff([][]byte{s.From.Chain[0].Raw}, h.Chain); diff != "" {
		t.Error("x5c is not the chain")
	}
	changed := v.Claims()
	changed.Parents[0], changed.Audience[0], changed.Ext["k"][0] = "x", "x", '9'
	changed.Ext["new"] = []byte("1")
	h.Chain[0][0]++
	if diff := cmp.Diff(want, v.Claims()); diff != "" {
		t.Errorf("a reader changed the evidence:\n%s", diff)
	}
	if v.Header().Chain[0][0] != s.From.Chain[0].Raw[0] {
		t.Error("a reader changed the chain")
	}
}

func TestVerifier_Replay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newScene(t)
	v := s.verifier(t)
	c := s.Claims()
	c.OutputHash = ""
	compact := ecttest.Mint(t, s.From, ecttest.Recipe{Claims: c})
	first, err := v.Verify(ctx, compact, s.source())
	if err != nil {
		t.Fatal(err)
	}
	again, err := v.Verify(ctx, compact, s.source())
	var replayed *ect.ReplayedError
	if !errors.As(err, &replayed) || again.ID() != first.ID() {
		t.Errorf("the same again: got %v, want ReplayedError and the token", err)
	} else if want := (ect.ReplayKey{Issuer: s.From.ID, Workflow: c.Workflow, ID: first.ID()}); replayed.Key != want {
		t.Errorf("got key %v, want %v", replayed.Key, want)
	}
	other := s.source()
	other.Body = ect.Hash([]byte("other"))
	_, err = v.Verify(ctx, compact, other)
	wantReason(t, err, ect.ReasonReplay)
	reply := s.source()
	reply.Purpose = ect.Reply
	_, err = v.Verify(ctx, compact, reply)
	wantReason(t, err, ect.ReasonReplay)
	c.ID = first.ID()
	_, err = v.Verify(ctx, ecttest.Mint(t, s.From, ecttest.Recipe{Claims: c}), s.source())
	wantReason(t, err, ect.ReasonReplay)
	for range 3 {
		if _, err := v.Verify(ctx, compact, ect.Check{Purpose: ect.Parent}); err != nil {
			t.Errorf("as a parent: %v", err)
		}
	}
}

func TestReplay_OnlyValidTokensUseUpTheirID(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	v := s.verifier(t)
	c := s.Claims()
	c.ID = ect.NewID()
	recipe := ecttest.Recipe{Claims: c}
	good := ecttest.Mint(t, s.From, recipe)
	recipe.Sign = ecttest.SignES256(s.Stranger.Key)
	_, err := v.Verify(t.Context(), ecttest.Mint(t, s.From, recipe), s.source())
	wantReason(t, err, ect.ReasonInvalidSignature)
	other := s.source()
	other.Body = ect.Hash([]byte("other"))
	_, err = v.Verify(t.Context(), good, other)
	wantReason(t, err, ect.ReasonHashMismatch)
	if _, err := v.Verify(t.Context(), good, ect.Check{Purpose: ect.Parent}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), good, s.source()); err != nil {
		t.Errorf("after forgeries and a use as parent: %v", err)
	}
}

// That a header is known proves nothing of a token, and what it says stays the same.
func TestHeaders_KnownHeaderProvesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d := s.deps()
	d.Replay = fixedReplay{state: ect.ReplayFresh}
	verifier, signer := verifierOf(t, d), s.From.Signer(t, s.clock)
	var first, second ect.Verified
	for _, into := range []*ect.Verified{&first, &second} {
		token, err := signer.Sign(s.Claims())
		if err != nil {
			t.Fatal(err)
		}
		if *into, err = verifier.Verify(t.Context(), token.Compact(), s.source()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(first.Header(), second.Header()); diff != "" {
		t.Error("the same header says something else:", diff)
	}
	a, b := strings.Split(first.Compact(), "."), strings.Split(second.Compact(), ".")
	_, err := verifier.Verify(t.Context(), a[0]+"."+a[1]+"."+b[2], s.source())
	wantReason(t, err, ect.ReasonInvalidSignature)
}

func TestVerifier_HashWithoutABodyIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	check := s.source()
	check.Body = ""
	_, err := s.verifier(t).Verify(t.Context(), s.Good(t), check)
	wantReason(t, err, ect.ReasonHashMismatch)
}

func TestVerifier_DependencyErrorIsNotInvalid(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	trouble := errors.New("trouble")
	for name, change := range map[string]func(*ect.VerifierDeps){
		"keys":   func(d *ect.VerifierDeps) { d.Keys = brokenKeys{trouble} },
		"replay": func(d *ect.VerifierDeps) { d.Replay = fixedReplay{ect.ReplayFresh, trouble} },
	} {
		d := s.deps()
		change(&d)
		v, err := verifierOf(t, d).Verify(t.Context(), s.Good(t), s.source())
		var invalid *ect.InvalidError
		if !errors.Is(err, trouble) || errors.As(err, &invalid) || v.ID() != "" {
			t.Errorf("%s: got %v, want the trouble itself", name, err)
		}
	}
}

func TestVerifier_AnswersOfKeysAndReplayCache(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, tc := range map[string]struct {
		change func(*ect.VerifierDeps)
		want   ect.Reason
	}{
		"key not trusted": {func(d *ect.VerifierDeps) {
			d.Keys = brokenKeys{&ect.InvalidError{Reason: ect.ReasonKeyNotTrusted}}
		}, ect.ReasonKeyNotTrusted},
		"a key of another kind": {func(d *ect.VerifierDeps) {
			d.Keys = fixedKeys{ect.Peer{ID: s.From.ID, Key: []byte("secret")}}
		}, ect.ReasonUnsupportedAlg},
		"no key": {func(d *ect.VerifierDeps) { d.Keys = fixedKeys{ect.Peer{ID: s.From.ID}} }, ect.ReasonUnsupportedAlg},
		"a key of nobody": {func(d *ect.VerifierDeps) {
			d.Keys = fixedKeys{ect.Peer{Key: &s.From.Key.PublicKey}}
		}, ect.ReasonIssuerMismatch},
		"a cache too young":  {func(d *ect.VerifierDeps) { d.Replay = fixedReplay{state: ect.ReplayUnknown} }, ect.ReasonTooOld},
		"a state unheard of": {func(d *ect.VerifierDeps) { d.Replay = fixedReplay{state: 99} }, ect.ReasonReplay},
	} {
		d := s.deps()
		tc.change(&d)
		c := s.Claims()
		c.ID = ect.NewID()
		_, err := verifierOf(t, d).Verify(t.Context(), ecttest.Mint(t, s.From, ecttest.Recipe{Claims: c}), s.source())
		t.Run(name, func(t *testing.T) {
			wantReason(t, err, tc.want)
			var invalid *ect.InvalidError
			if errors.As(err, &invalid) && invalid.ID != c.ID {
				t.Error("the refusal does not name the token")
			}
		})
	}
}

type spyKeys struct {
	ect.KeySource
	got ect.KeyRequest
}

func (k *spyKeys) Resolve(ctx context.Context, r ect.KeyRequest) (ect.Peer, error) {
	k.got = r
	return k.KeySource.Resolve(ctx, r)
}

func TestVerifier_KeyRequestHasAllFields(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d := s.deps()
	spy := &spyKeys{KeySource: s.keys}
	d.Keys = spy
	issued := s.Now // and judged a little later: chains are judged as of iat (R4)
	token := s.Good(t)
	d.Now = func() time.Time { return issued.Add(time.Minute) }
	if _, err := verifierOf(t, d).Verify(t.Context(), token, s.source()); err != nil {
		t.Fatal(err)
	}
	if got := spy.got; got.Issuer != s.From.ID || !got.At.Equal(issued) || got.Peer.ID != s.From.ID || got.Header.KeyID != s.From.KeyID {
		t.Errorf("got %+v", got)
	}
}

func TestUnsigned_Verify(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d := s.deps()
	d.MinLevel = ect.L1
	for name, tc := range map[string]struct {
		payload ecttest.Raw
		want    ect.Reason // empty: accepted
	}{
		"by the peer":       {nil, ""},
		"by nobody":         {ecttest.Raw{"iss": ``, "aud": ``}, ""},
		"by somebody else":  {ecttest.Raw{"iss": `"spiffe://example.com/agent/b"`}, ect.ReasonIssuerMismatch},
		"for somebody else": {ecttest.Raw{"aud": `"spiffe://example.com/agent/b"`}, ect.ReasonAudienceMismatch},
		"run out":           {ecttest.Raw{"iat": "1", "exp": "2"}, ect.ReasonExpired},
		"without an id":     {ecttest.Raw{"jti": ``}, ect.ReasonMissingClaim},
		"a translation":     {ecttest.Raw{"exec_act": `"aepb:translate"`}, ect.ReasonLevelTooLow},
		"a cpat one":        {ecttest.Raw{"exec_act": `"cpat:translate"`}, ect.ReasonLevelTooLow},
		"a vote":            {ecttest.Raw{"exec_act": `"consensus_vote"`}, ect.ReasonLevelTooLow},
		"a proposal":        {ecttest.Raw{"exec_act": `"consensus_proposal"`}, ect.ReasonLevelTooLow},
		"an outcome":        {ecttest.Raw{"exec_act": `"consensus_outcome"`}, ect.ReasonLevelTooLow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compact := ecttest.MintUnsigned(t, s.From, ecttest.Recipe{Claims: s.Claims(), Payload: tc.payload})
			v, err := verifierOf(t, d).Verify(t.Context(), compact, s.source())
			if tc.want != "" {
				wantReason(t, err, tc.want)
				return
			}
			if err != nil || v.Level() != ect.L1 {
				t.Errorf("got level %d, %v", v.Level(), err)
			}
		})
	}
	_, err := verifierOf(t, d).Verify(t.Context(), ecttest.MintUnsigned(t, s.From, ecttest.Recipe{Claims: s.Claims()}), ect.Check{Body: ect.Hash(s.Body)})
	wantReason(t, err, ect.ReasonIssuerMismatch)
}

func TestNewVerifier_Refuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, change := range map[string]func(*ect.VerifierDeps){
		"no keys":               func(d *ect.VerifierDeps) { d.Keys = nil },
		"no replay cache":       func(d *ect.VerifierDeps) { d.Replay = nil },
		"no audience":           func(d *ect.VerifierDeps) { d.Audience = nil },
		"an empty audience":     func(d *ect.VerifierDeps) { d.Audience = []string{self, ""} },
		"a negative age":        func(d *ect.VerifierDeps) { d.MaxAge = -time.Second },
		"a negative skew":       func(d *ect.VerifierDeps) { d.Skew = -time.Second },
		"a negative lifetime":   func(d *ect.VerifierDeps) { d.MaxLifetime = -time.Second },
		"a negative size":       func(d *ect.VerifierDeps) { d.MaxToken = -1 },
		"a level it cannot see": func(d *ect.VerifierDeps) { d.MinLevel = ect.L3 },
		"an algorithm of RSA":   func(d *ect.VerifierDeps) { d.Algorithms = []string{"ES256", "RS256"} },
		"no algorithm":          func(d *ect.VerifierDeps) { d.Algorithms = []string{"none"} },
	} {
		d := s.deps()
		change(&d)
		if _, err := ect.NewVerifier(d); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	v := verifierOf(t, ect.VerifierDeps{Keys: s.keys})
	if _, err := v.Verify(t.Context(), s.Good(t), ect.Check{Purpose: ect.Parent}); err != nil {
		t.Errorf("ancestors only: %v", err)
	}
	for _, purpose := range []ect.Purpose{ect.Source, ect.Reply, 7} {
		_, err := v.Verify(t.Context(), s.Good(t), ect.Check{Purpose: purpose, Body: ect.Hash(s.Body)})
		if invalid := (*ect.InvalidError)(nil); err == nil || errors.As(err, &invalid) {
			t.Errorf("purpose %d without a replay cache: %v", purpose, err)
		}
	}
}

func TestErrors_SayWhyAndQuoteNothing(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"execution context token refused: expired (exp)":                          &ect.InvalidError{Reason: ect.ReasonExpired, Claim: "exp"},
		"execution context token refused: level_too_low":                          &ect.InvalidError{Reason: ect.ReasonLevelTooLow, ID: "x"},
		"malformed execution context: payload is not base64url":                   &ect.MalformedError{Reason: "payload is not base64url"},
		"execution context header exceeds 16384":                                  &ect.TooLargeError{What: "header", Limit: 16 << 10},
		"execution context token already in use":                                  &ect.ReplayedError{Key: ect.ReplayKey{ID: "x"}},
		"another execution context token has this id: 550e8400-e29b-41d4-a716-44": &ect.ConflictError{ID: "550e8400-e29b-41d4-a716-44"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	s := newScene(t)
	v := s.verifier(t)
	for _, claim := range []string{"iss", "aud", "iat", "jti", "wid", "exec_act", "par", "inp_hash", "ext", "nbf"} {
		const secret = "pssst"
		for _, value := range []string{`"` + secret + `"`, `["` + secret + `"]`} {
			compact := ecttest.Mint(t, s.From, ecttest.Recipe{Claims: s.Claims(), Payload: ecttest.Raw{claim: value}})
			_, err := v.Verify(t.Context(), compact, s.source())
			if claim == "exec_act" && err == nil {
				continue // any text is an act
			}
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: got %v", claim, err)
			}
			var invalid *ect.InvalidError
			if errors.As(err, &invalid) && strings.Contains(string(invalid.ID), secret) {
				t.Errorf("%s: a foreign text became an id", claim)
			}
		}
	}
}

// TestParseUnverified_RefusesHeaders: even without belief, only headers that could be
// believed are read.
func TestParseUnverified_RefusesHeaders(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for want, header := range map[ect.Reason]ecttest.Raw{
		ect.ReasonUnsupportedAlg: {"alg": `"none"`}, ect.ReasonWrongType: {"typ": `"JWT"`}, ect.ReasonUnsupportedCritical: {"crit": `["exp"]`},
	} {
		c, _, err := ect.ParseUnverified(ecttest.Mint(t, s.From, ecttest.Recipe{Claims: s.Claims(), Header: header}))
		wantReason(t, err, want)
		if c.Issuer != "" {
			t.Errorf("%s: claims were handed out", want)
		}
	}
	c, _, err := ect.ParseUnverified(ecttest.MintUnsigned(t, s.From, ecttest.Recipe{Claims: s.Claims()}))
	if err != nil || c.Act != "send_task" {
		t.Errorf("unsigned: %+v, %v", c, err)
	}
}

// TestParseRecorded_AgreesWithParseUnverified: what is read of a token on record are its claims as ParseUnverified reads them.
func TestParseRecorded_AgreesWithParseUnverified(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var parser ect.RecordParser
	for name, compact := range map[string]string{
		"signed":      ecttest.Mint(t, s.From, ecttest.Recipe{Claims: s.Claims()}),
		"unsigned":    ecttest.MintUnsigned(t, s.From, ecttest.Recipe{Claims: s.Claims()}),
		"translation": ecttest.Mint(t, s.From, ecttest.Recipe{Claims: translation(s)}),
	} {
		want, _, err := ect.ParseUnverified(compact)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := parser.Parse(compact)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-ParseUnverified +ParseRecorded):\n%s", name, err, diff)
		}
	}
	signed := ecttest.Mint(t, s.From, ecttest.Recipe{Claims: s.Claims()})
	for _, compact := range []string{signed[:strings.LastIndexByte(signed, '.')], signed + ".", "", "a.b", "e30", "a.e30.c", "a.!.c", "a.bm90IGpzb24.c", strings.Repeat("a", 1<<17)} {
		if c, err := ect.ParseRecorded(compact); err == nil {
			t.Errorf("%.20q: got %+v, want an error", compact, c)
		}
	}
}
