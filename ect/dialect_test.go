package ect_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

var allDialects = []ect.Dialect{ect.DialectSeed, ect.Dialect00, ect.Dialect01, ect.DialectDual}

func TestDialect_RoundTrip(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, d := range allDialects {
		for name, ext := range map[string]ect.Ext{"with": {"k": []byte(`{"l":[1.0,"\u2028"]}`)}, "without": nil} {
			t.Run(string(d)+" "+name+" extension", func(t *testing.T) {
				t.Parallel()
				c := s.Claims()
				c.Parents, c.Ext = []ect.ID{ect.NewID(), ect.NewID()}, ext
				token, err := s.From.Signer(t, s.clock).SignAs(d, c)
				if err != nil {
					t.Fatal(err)
				}
				v, err := s.verifier(t).Verify(t.Context(), token.Compact(), s.source())
				if err != nil {
					t.Fatal(err)
				}
				if token.Dialect() != d || v.Dialect() != d {
					t.Errorf("signed as %s, read as %s", token.Dialect(), v.Dialect())
				}
				if diff := cmp.Diff(token.Claims(), v.Claims()); diff != "" {
					t.Errorf("signed and verified differ (-signed +verified):\n%s", diff)
				}
			})
		}
	}
}

// The names that each revision uses, and none of the others'.
func TestDialect_ClaimNamesOfTheDrafts(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	c := s.Claims()
	c.Parents, c.Ext = []ect.ID{ect.NewID()}, ect.Ext{"k": []byte("1")}
	for d, want := range map[ect.Dialect]struct {
		typ   string
		names []string
	}{
		"":              {"exec+jwt", []string{"ext", "par"}},
		ect.DialectSeed: {"exec+jwt", []string{"ext", "par"}},
		ect.Dialect00:   {"wimse-exec+jwt", []string{"ext", "par"}},
		ect.Dialect01:   {"exec+jwt", []string{"ect_ext", "pred"}},
		ect.DialectDual: {"wimse-exec+jwt", []string{"ect_ext", "ext", "par", "pred"}},
	} {
		token, err := s.From.Signer(t, s.clock).SignAs(d, c)
		if err != nil {
			t.Fatal(err)
		}
		part := strings.Split(token.Compact(), ".")
		var header, payload map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal([]byte(decode(t, part[0])), &header), json.Unmarshal([]byte(decode(t, part[1])), &payload)); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, name := range []string{"ect_ext", "ext", "par", "pred"} {
			if payload[name] != nil {
				names = append(names, name)
			}
		}
		if got := string(header["typ"]); got != `"`+want.typ+`"` || !slices.Equal(names, want.names) {
			t.Errorf("%s: got typ %s and %q", d, got, names)
		}
		for _, pair := range [][2]string{{"par", "pred"}, {"ext", "ect_ext"}} {
			if a, b := payload[pair[0]], payload[pair[1]]; a != nil && b != nil && string(a) != string(b) {
				t.Errorf("%s: %s and %s are two texts", d, pair[0], pair[1])
			}
		}
	}
}

func TestSignAs_Refuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	signer := s.From.Signer(t, s.clock)
	c := s.Claims()
	fill := func(size int) ect.Ext {
		e := ect.Ext{}
		e.SetString("k", strings.Repeat("x", size-len(`{"k":""}`)))
		return e
	}
	for _, d := range allDialects {
		c.Ext = fill(d.MaxExt())
		if _, err := signer.SignAs(d, c); err != nil {
			t.Errorf("%s: as much as it holds: %v", d, err)
		}
		c.Ext = fill(d.MaxExt() + 1)
		if _, err := signer.SignAs(d, c); !errors.Is(err, ect.ErrUnsignable) {
			t.Errorf("%s: more than it holds: %v", d, err)
		}
	}
	if ect.DialectDual.MaxExt() != 1536 || ect.Dialect01.MaxExt() != 4096 {
		t.Error("the bounds have moved")
	}
	for _, d := range []ect.Dialect{"02", "Seed", "dual ", "d0"} {
		if _, err := signer.SignAs(d, s.Claims()); !errors.Is(err, ect.ErrUnsignable) {
			t.Errorf("%q: got %v", d, err)
		}
	}
}

// ect.md has the whole table; the refusals are among the vectors.
func TestVerifier_MixedDialectsWithOneMeaning(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := string(ect.NewID())
	par, ext := `["`+a+`"]`, `{"k":1}`
	older := ecttest.Raw{"typ": `"application/WIMSE-exec+jwt"`}
	for name, tc := range map[string]struct {
		header, payload ecttest.Raw
		want            ect.Dialect
		bare            bool // no extension is expected
	}{
		"par, ext":                   {nil, ecttest.Raw{"par": par, "ext": ext}, ect.DialectSeed, false},
		"par":                        {nil, ecttest.Raw{"par": par}, ect.DialectSeed, true},
		"par, ext, the older typ":    {older, ecttest.Raw{"par": par, "ext": ext}, ect.Dialect00, false},
		"pred, ect_ext":              {nil, ecttest.Raw{"par": ``, "pred": par, "ect_ext": ext}, ect.Dialect01, false},
		"pred":                       {nil, ecttest.Raw{"par": ``, "pred": par}, ect.Dialect01, true},
		"both of both":               {older, ecttest.Raw{"par": par, "pred": par, "ext": ext, "ect_ext": ext}, ect.DialectDual, false},
		"both of both, the new typ":  {nil, ecttest.Raw{"par": par, "pred": par, "ext": ext, "ect_ext": ext}, ect.DialectDual, false},
		"par and pred, ext alone":    {nil, ecttest.Raw{"par": par, "pred": par, "ext": ext}, ect.DialectDual, false},
		"pred with ext":              {nil, ecttest.Raw{"par": ``, "pred": par, "ext": ext}, ect.DialectDual, false},
		"par with ect_ext":           {nil, ecttest.Raw{"par": par, "ect_ext": ext}, ect.DialectDual, false},
		"pred under the older typ":   {older, ecttest.Raw{"par": ``, "pred": par}, ect.DialectDual, true},
		"copies that look different": {nil, ecttest.Raw{"par": par, "pred": ` [ "` + a + `" ] `, "ext": ext, "ect_ext": ` {"\u006b" : 1} `}, ect.DialectDual, false},
		"capital names beside":       {nil, ecttest.Raw{"par": par, "ext": ext, "PRED": `["x"]`, "Ect_Ext": `{}`}, ect.DialectSeed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compact := ecttest.Mint(t, s.From, ecttest.Recipe{Claims: s.Claims(), Header: tc.header, Payload: tc.payload})
			v, err := s.verifier(t).Verify(t.Context(), compact, s.source())
			if err != nil {
				t.Fatal(err)
			}
			c := v.Claims()
			if v.Dialect() != tc.want || !slices.Equal(c.Parents, []ect.ID{ect.ID(a)}) || string(c.Ext["k"]) == "1" == tc.bare {
				t.Errorf("read as %s: parents %q, extension %s", v.Dialect(), c.Parents, c.Ext)
			}
			if v.Compact() != compact {
				t.Error("the bytes are not those that came")
			}
		})
	}
}

func TestLenient_Verify(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	sum := ect.Hash(s.Body)
	prefixed := ecttest.Raw{"out_hash": `"sha-256:` + sum + `"`, "inp_hash": `"sha-256:` + sum + `"`}
	hash, root := ect.Lenient{HashPrefix: true}, ect.Lenient{NoParents: true}
	for name, tc := range map[string]struct {
		lenient ect.Lenient
		payload ecttest.Raw
		want    ect.Reason // empty: accepted
	}{
		"prefix, strict":              {root, prefixed, ect.ReasonInvalidClaim},
		"prefix, lenient":             {hash, prefixed, ""},
		"no prefix, lenient":          {hash, nil, ""},
		"prefix of another body":      {hash, ecttest.Raw{"out_hash": `"sha-256:` + ect.Hash([]byte("x")) + `"`}, ect.ReasonHashMismatch},
		"prefix in capitals":          {hash, ecttest.Raw{"out_hash": `"SHA-256:` + sum + `"`}, ect.ReasonInvalidClaim},
		"prefix of another hash":      {hash, ecttest.Raw{"inp_hash": `"sha-512:` + sum + `"`}, ect.ReasonInvalidClaim},
		"prefix twice":                {hash, ecttest.Raw{"inp_hash": `"sha-256:sha-256:` + sum + `"`}, ect.ReasonInvalidClaim},
		"prefix alone":                {hash, ecttest.Raw{"out_hash": `"sha-256:"`}, ect.ReasonInvalidClaim},
		"prefix, no string":           {hash, ecttest.Raw{"out_hash": `["sha-256:` + sum + `"]`}, ect.ReasonInvalidClaim},
		"no parents, strict":          {hash, ecttest.Raw{"par": ``}, ect.ReasonMissingClaim},
		"no parents, lenient":         {root, ecttest.Raw{"par": ``}, ""},
		"null parents, lenient":       {root, ecttest.Raw{"par": `null`}, ect.ReasonInvalidClaim},
		"no parents, no act, lenient": {root, ecttest.Raw{"par": ``, "exec_act": ``}, ect.ReasonMissingClaim},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := s.deps()
			d.Lenient = tc.lenient
			compact := ecttest.Mint(t, s.From, ecttest.Recipe{Claims: s.Claims(), Payload: tc.payload})
			v, err := verifierOf(t, d).Verify(t.Context(), compact, s.source())
			if tc.want != "" {
				wantReason(t, err, tc.want)
				return
			}
			if err != nil || v.Claims().OutputHash != sum || v.Claims().Parents == nil {
				t.Errorf("got %v, %+v", err, v.Claims())
			}
			if c, _, err := ect.ParseUnverified(compact); err != nil || c.ID != v.ID() {
				t.Errorf("what a verifier accepts cannot be shown: %v", err)
			}
		})
	}
}

func TestParseDialect_Names(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]ect.Dialect{"": "seed", "seed": "seed", "00": "00", "01": "01", "dual": "dual", "SEED": "", "D1": "", "0": ""} {
		got, err := ect.ParseDialect(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}

func TestDialects_LearnedAndConfigured(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	peers := []*ecttest.Party{s.From, s.Other, ecttest.NewEdwardsParty(t, "spiffe://example.com/agent/c")}
	deps := s.deps()
	deps.Keys = ecttest.KeysOf(peers...)
	received := func(from *ecttest.Party, d ect.Dialect, age time.Duration) ect.Verified {
		c := s.Claims()
		c.IssuedAt -= int64(age / time.Second)
		token, err := from.Signer(t, s.clock).SignAs(d, c)
		if err != nil {
			t.Fatal(err)
		}
		v, err := verifierOf(t, deps).Verify(t.Context(), token.Compact(), ect.Check{Purpose: ect.Parent})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	d, err := ect.NewDialects(ect.DialectsDeps{Configured: map[ect.Identity]ect.Dialect{s.Other.ID: ect.Dialect00}, Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	want := func(step string, peer *ecttest.Party, want ect.Dialect) {
		t.Helper()
		if got := d.For(peer.ID); got != want {
			t.Errorf("%s: got %s, want %s", step, got, want)
		}
	}
	want("nobody was heard", s.From, ect.DialectSeed)
	want("configured", s.Other, ect.Dialect00)
	d.Learn(received(s.From, ect.Dialect01, 0))
	want("heard", s.From, ect.Dialect01)
	d.Learn(received(s.From, ect.Dialect00, time.Minute))
	want("an older token", s.From, ect.Dialect01)
	d.Learn(received(s.From, ect.DialectDual, 0))
	want("a token as new", s.From, ect.DialectDual)
	d.Learn(received(s.Other, ect.Dialect01, 0))
	want("configured, heard otherwise", s.Other, ect.Dialect00)
	d.Learn(ect.Verified{})
	want("nothing was heard", s.From, ect.DialectDual)

	third, fourth := peers[2], ecttest.NewParty(t, "spiffe://example.com/agent/d")
	deps.Keys = ecttest.KeysOf(append(peers, fourth)...)
	d.Learn(received(third, ect.Dialect01, 0))
	d.Learn(received(s.From, ect.Dialect00, 0))
	d.Learn(received(fourth, ect.Dialect00, 0))
	want("the one heard longest ago is forgotten", third, ect.DialectSeed)
	want("the one heard again is not", s.From, ect.Dialect00)
	want("nor the last", fourth, ect.Dialect00)

	for name, deps := range map[string]ect.DialectsDeps{
		"unknown":  {Configured: map[ect.Identity]ect.Dialect{"x": "02"}},
		"nobody's": {Configured: map[ect.Identity]ect.Dialect{"": ect.Dialect00}},
		"negative": {Limit: -1},
	} {
		if _, err := ect.NewDialects(deps); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// An unsigned token is anybody's word, and teaches nothing.
func TestDialects_UnsignedTokensTeachNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	deps := s.deps()
	deps.MinLevel = ect.L1
	compact := ecttest.MintUnsigned(t, s.From, ecttest.Recipe{Claims: s.Claims(), Payload: ecttest.Raw{"par": ``, "pred": `[]`}})
	v, err := verifierOf(t, deps).Verify(t.Context(), compact, s.source())
	if err != nil || v.Dialect() != ect.Dialect01 {
		t.Fatalf("read as %s: %v", v.Dialect(), err)
	}
	d, err := ect.NewDialects(ect.DialectsDeps{})
	if err != nil {
		t.Fatal(err)
	}
	d.Learn(v)
	if got := d.For(s.From.ID); got != ect.DialectSeed {
		t.Errorf("learnt %s", got)
	}
}
