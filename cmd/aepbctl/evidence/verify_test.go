package evidence

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
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
		"both":               {[]string{"--ca", ca, root, child}, program.ExitOK, "complete: 2 records verified"},
		"without the parent": {[]string{"--ca", ca, child}, program.ExitFailed, "names parent " + string(parent) + ", which was not given"},
		"in another domain":  {[]string{"--ca", ca, "--trust-domain", "else.dev", root, child}, program.ExitFailed, "NOT VERIFIED"},
		"of another CA":      {[]string{"--ca", filepath.Join(foreign, "ca.pem"), root, child}, program.ExitFailed, "NOT VERIFIED"},
		"no such CA":         {[]string{"--ca", filepath.Join(empty, "none.pem"), root}, program.ExitFailed, "none.pem"},
		"bundle, no domain":  {[]string{"--bundle", ca, root}, program.ExitUsage, "--trust-domain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := program.Run(t.Context(), Commands, append([]string{"ect", "verify", "--dir", empty}, tc.args...), nil, &out, &errs)
			if text := out.String() + errs.String(); code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("exit code %d, want %d with %q: %s", code, tc.code, tc.want, text)
			}
		})
	}
	var out, errs bytes.Buffer
	code := program.Run(t.Context(), Commands, []string{"ect", "verify", "--dir", empty, "--ca", ca, "-o", "json", child}, nil, &out, &errs)
	if code != program.ExitFailed || !json.Valid(out.Bytes()) || !strings.Contains(errs.String(), "names parent "+string(parent)) {
		t.Errorf("as JSON: exit code %d, %s, beside it %s", code, &out, &errs)
	}
}

// TestColour_OnTerminalsAlone: and not where its reader wants none.
func TestColour_OnTerminalsAlone(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	var screen terminaltest.Screen
	records := []audit.Record{{Claims: ect.Claims{ID: "a", Issuer: "spiffe://x/a"}}, {Claims: ect.Claims{ID: "b", Issuer: "spiffe://x/b"}, Problem: "no"}}
	colours := func() int {
		screen.Reset()
		if err := proof.PrintRecords(&screen, records); err != nil {
			t.Fatal(err)
		}
		if err := (proof.Verdict{Records: records, Findings: audit.Judge(records, "")}).Print(&screen); err != nil {
			t.Fatal(err)
		}
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
	if err := proof.PrintRecords(&file, records); err != nil || strings.Contains(file.String(), "\x1b") {
		t.Errorf("a file gets %q", &file)
	}
}
