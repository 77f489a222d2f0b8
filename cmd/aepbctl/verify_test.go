package main

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// TestVerify_NeedsTheCAAlone: an auditor has the CA's certificate and nothing else; it is told whether
// every parent is there, and the exit code says so.
func TestVerify_NeedsTheCAAlone(t *testing.T) {
	t.Parallel()
	dir, empty := t.TempDir(), t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	kid, err := ect.Thumbprint(dev.Client.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := dev.Client.Key.(*ecdsa.PrivateKey)
	who := &ecttest.Party{ID: dev.Client.ID, Key: key, Chain: dev.Client.Chain, KeyID: kid}
	claims := ect.Claims{ID: ect.NewID(), Audience: []string{"spiffe://aepb.dev/gateway"}, Workflow: string(ect.NewID())}
	root := ecttest.Mint(t, who, ecttest.Recipe{Claims: claims})
	parent := claims.ID
	claims.ID, claims.Parents = ect.NewID(), []ect.ID{parent}
	child := ecttest.Mint(t, who, ecttest.Recipe{Claims: claims})
	ca := filepath.Join(dir, "ca.pem")
	foreign := filepath.Join(t.TempDir(), "other")
	if _, err := identity.LoadOrCreate(foreign, "other.dev", time.Now); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"both":               {[]string{"--ca", ca, root, child}, exitOK, "complete: 2 records verified"},
		"without the parent": {[]string{"--ca", ca, child}, exitFailed, "names parent " + string(parent) + ", which was not given"},
		"in another domain":  {[]string{"--ca", ca, "--trust-domain", "else.dev", root, child}, exitFailed, "NOT VERIFIED"},
		"of another CA":      {[]string{"--ca", filepath.Join(foreign, "ca.pem"), root, child}, exitFailed, "NOT VERIFIED"},
		"no such CA":         {[]string{"--ca", filepath.Join(empty, "none.pem"), root}, exitFailed, "none.pem"},
		"bundle, no domain":  {[]string{"--bundle", ca, root}, exitUsage, "--trust-domain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := run(t.Context(), append([]string{"ect", "verify", "--dir", empty}, tc.args...), nil, &out, &errs)
			if text := out.String() + errs.String(); code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("exit code %d, want %d with %q: %s", code, tc.code, tc.want, text)
			}
		})
	}
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"ect", "verify", "--dir", empty, "--ca", ca, "-o", "json", child}, nil, &out, &errs)
	if code != exitFailed || !json.Valid(out.Bytes()) || !strings.Contains(errs.String(), "names parent "+string(parent)) {
		t.Errorf("as JSON: exit code %d, %s, beside it %s", code, &out, &errs)
	}
}

// TestVerify_ChildOfForgedIsNotVerified: a good signature below a forged record proves nothing.
func TestVerify_ChildOfForgedIsNotVerified(t *testing.T) {
	t.Parallel()
	token := func(id ect.ID, verified bool, parents ...ect.ID) tokenView {
		return tokenView{ID: id, Verified: verified, Parents: parents}
	}
	for name, c := range map[string]struct {
		views []tokenView
		want  string // of each: v for verified
	}{
		"forged root":           {[]tokenView{token("a", false), token("b", true, "a"), token("c", true, "b")}, "---"},
		"child comes first":     {[]tokenView{token("c", true, "b"), token("b", true, "a"), token("a", false)}, "---"},
		"another of that id":    {[]tokenView{token("a", false), token("a", true), token("b", true, "a")}, "-vv"},
		"one of two parents":    {[]tokenView{token("a", true), token("b", false), token("c", true, "a", "b")}, "v--"},
		"parent is not there":   {[]tokenView{token("b", true, "a")}, "v"},
		"beside a forged child": {[]tokenView{token("a", true), token("b", false, "a")}, "v-"},
		"a circle":              {[]tokenView{token("a", true, "b"), token("b", false, "a")}, "--"},
	} {
		distrust(c.views)
		got := bytes.Repeat([]byte("-"), len(c.views))
		for i, v := range c.views {
			if v.Verified {
				got[i] = 'v'
			}
		}
		if string(got) != c.want || len(ordered(c.views)) != len(c.views) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestTokens_AreReadFromOurOwnJSON: what this program prints it reads, and nothing that an agent wrote.
func TestTokens_AreReadFromOurOwnJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a.b.c\n d.e.f": "a.b.c d.e.f",
		`[{"compact":"a.b.c"},{"compact":"d.e.f"}]`: "a.b.c d.e.f",
		`["a.b.c"]`:           "a.b.c",
		`{"compact":"a.b.c"}`: "a.b.c",
		"{\"compact\":\"a.b.c\"}\n{\"compact\":\"d.e.f\"}":                                        "a.b.c d.e.f",
		`{"reply":{"compact":"x.y.z","ects":["x.y.z"]},"losses":[],"ects":[{"compact":"a.b.c"}]}`: "a.b.c",
		`{"wid":"1","ects":["a.b.c"]}`:                                                            "a.b.c",
		`{"ok":true,"exchanges":[{"ects":["a.b.c"]}]}`:                                            "a.b.c",
		`{"hello":1}`: "no token",
		`[{]`:         "cannot be read",
		"":            "no token",
	} {
		list, err := tokensIn([]byte(text), "there")
		got := strings.Join(list, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err == nil && got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// tty is a terminal.
type tty struct{ bytes.Buffer }

func (*tty) Terminal() bool { return true }

// TestColour_OnTerminalsAlone: and not where its reader wants none.
func TestColour_OnTerminalsAlone(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	var screen tty
	views := []tokenView{{ID: "a", Issuer: "spiffe://x/a", Verified: true}, {ID: "b", Issuer: "spiffe://x/b", Problem: "no"}}
	colours := func() int {
		screen.Reset()
		if err := printRecords(&screen, views); err != nil {
			t.Fatal(err)
		}
		printVerdict(&screen, views, chain{})
		return strings.Count(screen.String(), "\x1b[")
	}
	if got := colours(); got != 6 { // ok, NOT VERIFIED and NOT PROVEN, each on and off
		t.Errorf("%d changes of colour: %q", got, &screen)
	}
	t.Setenv("NO_COLOR", "1")
	if got := colours(); got != 0 {
		t.Errorf("%d unexpected changes of colour: %q", got, &screen)
	}
	var file bytes.Buffer
	t.Setenv("NO_COLOR", "")
	if err := printRecords(&file, views); err != nil || strings.Contains(file.String(), "\x1b") {
		t.Errorf("a file gets %q", &file)
	}
}
