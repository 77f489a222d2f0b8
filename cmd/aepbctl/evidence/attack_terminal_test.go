package evidence

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// TestAttack_TokenForgesTerminalLines: finding 16. The issuer of a token writes
// line breaks and terminal escapes into its claims. Before, "ect verify" printed
// a second line that said that another token was verified, and hid the rest. Now
// it is one line with the text quoted, and the exit code says no as before.
func TestAttack_TokenForgesTerminalLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	key, ok := dev.Client.Key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("the client's key is no ECDSA key")
	}
	kid, err := ect.Thumbprint(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(terminaltest.Hostile)
	if err != nil {
		t.Fatal(err)
	}
	who := &ecttest.Party{ID: dev.Client.ID, Key: key, Chain: dev.Client.Chain, KeyID: kid}
	good := ecttest.Recipe{Claims: ect.Claims{Audience: []string{"spiffe://aepb.dev/gateway"}, Workflow: string(ect.NewID())}}
	forged := good
	forged.Payload = ecttest.Raw{
		"exec_act": string(text), "iss": string(text),
		"ext": `{"` + ect.ExtSourceProtocol + `":` + string(text) + `,"` + ect.ExtDestProtocol + `":` + string(text) + `,"` + ect.ExtWarnings + `":[` + string(text) + `]}`,
	}
	signed := good
	signed.Payload = ecttest.Raw{"exec_act": string(text)}
	for name, tc := range map[string]struct {
		recipe ecttest.Recipe
		code   int
	}{"an honest one": {good, program.ExitOK}, "a verified one": {signed, program.ExitOK}, "a forged one": {forged, program.ExitFailed}} {
		token := ecttest.Mint(t, who, tc.recipe)
		var out, errs bytes.Buffer
		if code := program.Run(t.Context(), Commands, []string{"ect", "verify", "--dir", dir, token}, nil, &out, &errs); code != tc.code {
			t.Errorf("%s: exit code %d: %s%s", name, code, &out, &errs)
		}
		terminaltest.Harmless(t, name, out.String(), 2) // and whether that is all
		out.Reset()
		if code := program.Run(t.Context(), Commands, []string{"ect", "show", "--dir", dir, token}, nil, &out, &errs); code != program.ExitOK {
			t.Errorf("%s: exit code %d: %s", name, code, &errs)
		}
		terminaltest.Harmless(t, name+", shown", out.String(), strings.Count(out.String(), "\n"))
	}
}

// TestAttack_PictureOfHostileTokens: whatever tokens say, a line of a picture is a line.
func TestAttack_PictureOfHostileTokens(t *testing.T) {
	t.Parallel()
	const hostile = terminaltest.Hostile
	records := []audit.Record{{Claims: ect.Claims{ID: hostile, Issuer: hostile, Act: hostile, Audience: []string{hostile}, Parents: []ect.ID{hostile}}, Problem: hostile}}
	var out bytes.Buffer
	if err := pictureOf(records).SVG(&out); err != nil {
		t.Fatal(err)
	}
	terminaltest.Harmless(t, "picture of tokens", out.String(), strings.Count(out.String(), "\n"))
}
