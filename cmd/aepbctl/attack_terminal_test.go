package main

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/doctor"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// hostile is text as an attacker writes it: a line of its own, an escape that
// hides what follows, control characters of one byte, and marks that turn the
// direction of the text.
const hostile = "send_task by spiffe://x/mallory, verified\n0000 approve_payment by spiffe://x/people/cfo, verified\x1b[8m\u009b31m\r\u202e\u2066\u05d0\x7f"

// harmless fails where a terminal would obey text, or where there are more
// lines than there should be.
func harmless(t *testing.T, name, text string, lines int) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !strconv.IsPrint(r) {
			t.Errorf("%s: a terminal gets %q in %q", name, r, text)
			break
		}
	}
	if got := strings.Count(text, "\n"); got != lines {
		t.Errorf("%s: %d lines, want %d: %q", name, got, lines, text)
	}
}

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
	text, err := json.Marshal(hostile)
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
	}{"an honest one": {good, exitOK}, "a verified one": {signed, exitOK}, "a forged one": {forged, exitFailed}} {
		token := ecttest.Mint(t, who, tc.recipe)
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"ect", "verify", "--dir", dir, token}, nil, &out, &errs); code != tc.code {
			t.Errorf("%s: exit code %d: %s%s", name, code, &out, &errs)
		}
		harmless(t, name, out.String(), 2) // and whether that is all
		out.Reset()
		if code := run(t.Context(), []string{"ect", "show", "--dir", dir, token}, nil, &out, &errs); code != exitOK {
			t.Errorf("%s: exit code %d: %s", name, code, &errs)
		}
		harmless(t, name+", shown", out.String(), strings.Count(out.String(), "\n"))
	}
}

// fill writes hostile text into every string of a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte("{\r\n\"a\":\"\u009b31m\u202e\x7f\xff\"}"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type() != reflect.TypeFor[time.Time]() {
				fill(v.Field(i))
			}
		}
	default:
	}
}

func hostileOf[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// hostileRecords is a token that does not hold and says hostile things.
func hostileRecords() []audit.Record {
	return []audit.Record{{Claims: hostileOf[ect.Claims](), Problem: hostile}}
}

// hostileReply is a reply with hostile text everywhere: text of an agent that has two lines stands behind bars.
func hostileReply() reply {
	text := canonical.Part{Kind: canonical.KindText, Text: hostile}
	return reply{
		parts: []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage("{\r\n\"a\":\"\u009b31m\u202e\x7f\xff\"}")}, {Kind: canonical.KindRef, URI: hostile, Name: hostile, Media: hostile}},
		state: "failed", task: hostile, detail: "one line",
		questions: []canonical.Input{{Prompt: []canonical.Part{text}, URL: hostile, Schema: json.RawMessage("{\n\"a\":\"\u202e\"}")}},
	}
}

// TestAttack_AnswersForgeTerminalLines: finding 16, for everything else that
// aepbctl prints as text: what agents, gateways and messages say.
func TestAttack_AnswersForgeTerminalLines(t *testing.T) {
	t.Parallel()
	listed := hostileOf[agent]()
	described := hostileOf[agent]()
	described.Description.Error = ""
	other := hostileOf[negotiation]()
	direct := hostileOf[negotiation]()
	direct.Outcome.Path = "direct"
	for name, c := range map[string]struct {
		print func(io.Writer) error
		lines int
	}{
		"agents show":          {func(w io.Writer) error { return printAgent(w, listed) }, 12},
		"agents show, answers": {func(w io.Writer) error { return printAgent(w, described) }, 16},
		"agents list":          {func(w io.Writer) error { return printAgents(w, []agent{listed}) }, 3},
		"negotiate":            {other.print, 6},
		"negotiate, direct":    {direct.print, 6},
		"send":                 {func(w io.Writer) error { return hostileReply().write(w) }, 9},
		"send, one line":       {func(w io.Writer) error { r := reply{state: "failed", detail: "\x1b[8m\u202e"}; return r.write(w) }, 1},
		"send -v":              {func(w io.Writer) error { d := hostileOf[delivery](); return d.write(w, hostileRecords()) }, 3},
		"losses":               {func(w io.Writer) error { return proof.LossesOf([]string{hostile, "L05 carried " + hostile}).Write(w) }, 2},
		"proof":                {func(w io.Writer) error { return printProof(w, hostileRecords(), nil, "") }, 1},
		"proof, not valid":     {func(w io.Writer) error { return printProof(w, hostileRecords(), errors.New(hostile), "") }, 1},
		"ect verify":           {func(w io.Writer) error { return proof.PrintRecords(w, hostileRecords()) }, 1},
		"verdict": {func(w io.Writer) error {
			return proof.Verdict{Records: hostileRecords(), Findings: hostileOf[[]audit.Finding](), Compared: hostileOf[[]audit.Comparison]()}.Print(w)
		}, 3},
		"translate": {func(w io.Writer) error { tr := hostileOf[translation](); return tr.print(w) }, 2},
		"dag":       {func(w io.Writer) error { return proof.PrintTree(w, hostileRecords()) }, 1},
		"agents add": {func(w io.Writer) error {
			return printAdded(w, "added", agent{Name: hostile, Description: &admindoc.Summary{Name: hostile, Version: hostile, Capabilities: []string{hostile}}}, hostile, true)
		}, 6},
		"doctor": {func(w io.Writer) error { printFinding(w, hostileOf[doctor.Finding]()); return nil }, 2},
		"errors": {func(w io.Writer) error {
			terminal.Complain(w, errors.Join(errors.New(hostile), errors.New("also")))
			return nil
		}, 1},
	} {
		var out bytes.Buffer
		if err := c.print(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		harmless(t, name, out.String(), c.lines)
	}
	body, err := json.Marshal(map[string]string{"code": hostile, "detail": hostile})
	if err != nil {
		t.Fatal(err)
	}
	harmless(t, "a refusal", answer{status: 403, body: body}.refusal().Error(), 0)
}

// TestWordsStayReadable: what is no attack is printed as it is.
func TestWordsStayReadable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"spiffe://example.com/a": "spiffe://example.com/a", "https://a.example:8443/x?y=z": "https://a.example:8443/x?y=z",
		"": "", "My Agent": `"My Agent"`, `a"b`: `"a\"b"`, "line\nbreak": `"line\nbreak"`,
	} {
		if got := terminal.Word(text); got != want {
			t.Errorf("%q is printed as %s", text, got)
		}
	}
	if got := terminal.Line("it is not good: x\n\x1b"); got != `it is not good: x; \x1b` {
		t.Error(got)
	}
	if got := string(terminal.Visible([]byte("{\"a\":\n\"\u202eé\"}"))); got != `{"a": "\u202eé"}` {
		t.Error(got)
	}
}
