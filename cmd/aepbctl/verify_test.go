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
		"both":               {[]string{"--ca", ca, root, child}, exitOK, "complete: 2 verified"},
		"without the parent": {[]string{"--ca", ca, child}, exitFailed, "missing: " + string(parent)},
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
	if code != exitFailed || !json.Valid(out.Bytes()) || !strings.Contains(errs.String(), "missing: "+string(parent)) {
		t.Errorf("as JSON: exit code %d, %s, beside it %s", code, &out, &errs)
	}
}
