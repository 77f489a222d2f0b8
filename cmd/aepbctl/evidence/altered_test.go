package evidence

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/evidence/evidencetest"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// evidenceFolder is the evidence of one exchange, as files by name, which a test alters.
type evidenceFolder struct {
	dev   *identity.Development
	other *identity.Development // of the same trust domain, with a CA of the same name
	files map[string][]byte
	edit  func(list string) string // of a manifest that an attacker makes anew; nil: it fits the files
}

func newFolder(t *testing.T, dir string) *evidenceFolder {
	t.Helper()
	k := &evidenceFolder{}
	for at, name := range map[**identity.Development]string{&k.dev: "ours", &k.other: "theirs"} {
		dev, err := identity.LoadOrCreate(filepath.Join(dir, name), "aepb.dev", time.Now)
		if err != nil {
			t.Fatal(err)
		}
		*at = dev
	}
	tokens := evidencetest.Tokens(t, k.dev)
	at := filepath.Join(dir, "kept")
	contents := proof.Contents{
		Tokens: tokens, Anchors: k.dev.Bundle.Anchors(), By: k.dev.Client.ID, Made: time.Now(), Sign: func(text []byte) (string, error) { return k.sign(t, text), nil },
		Messages: []proof.Message{{Name: "request", Role: audit.RequestRole, Body: []byte(evidencetest.SentBody)}, {Name: "reply", Role: audit.ReplyRole, Body: []byte(evidencetest.GotBody)}},
	}
	if err := contents.SaveFolder(at); err != nil {
		t.Fatal(err)
	}
	k.files = map[string][]byte{}
	for _, name := range []string{"manifest.json", "manifest.jwt", "tokens.jwt", "ca.pem", "messages/request", "messages/reply"} {
		text, err := os.ReadFile(filepath.Join(at, name))
		if err != nil {
			t.Fatal(err)
		}
		k.files[name] = text
	}
	return k
}

// sign signs a manifest as the caller.
func (k *evidenceFolder) sign(t *testing.T, text []byte) string {
	t.Helper()
	token, err := evidencetest.SignerOf(t, k.dev.Client).Sign(ect.Claims{Act: proof.ActExport, Audience: []string{string(k.dev.Client.ID)}, OutputHash: ect.Hash(text)})
	if err != nil {
		t.Fatal(err)
	}
	return token.Compact()
}

// copy is the same evidence, to be altered.
func (k *evidenceFolder) copy() *evidenceFolder {
	return &evidenceFolder{dev: k.dev, other: k.other, files: maps.Clone(k.files)}
}

func (k *evidenceFolder) tokens() []string { return strings.Fields(string(k.files["tokens.jwt"])) }

func (k *evidenceFolder) setTokens(list ...string) {
	k.files["tokens.jwt"] = []byte(strings.Join(list, "\n") + "\n")
}

func (k *evidenceFolder) replace(file, before, after string) {
	k.files[file] = []byte(strings.Replace(string(k.files[file]), before, after, 1))
}

// listAnew makes the manifest that fits the files, signed by the caller: an attacker with a certificate of his own can do so.
func (k *evidenceFolder) listAnew(t *testing.T) {
	t.Helper()
	var list map[string]json.RawMessage
	if err := json.Unmarshal(k.files["manifest.json"], &list); err != nil {
		t.Fatal(err)
	}
	var files []map[string]any
	for _, name := range slices.Sorted(maps.Keys(k.files)) {
		sum := sha256.Sum256(k.files[name])
		file := map[string]any{"name": name, "bytes": len(k.files[name]), "sha256": hex.EncodeToString(sum[:])}
		if role, is := strings.CutPrefix(name, "messages/"); is {
			file["role"] = role
		}
		if !strings.HasPrefix(name, "manifest.") {
			files = append(files, file)
		}
	}
	list["files"], _ = json.Marshal(files)
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if k.edit != nil {
		text = []byte(k.edit(string(text)))
	}
	k.files["manifest.json"], k.files["manifest.jwt"] = text, []byte(k.sign(t, text)+"\n")
}

func (k *evidenceFolder) write(t *testing.T, dir string) {
	t.Helper()
	for name, text := range k.files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// parts takes a token apart, and edit puts it together with other parts.
func edit(token string, change func(part []string)) string {
	part := strings.Split(token, ".")
	change(part)
	return strings.Join(part, ".")
}

func recode(part string, change func(string) string) string {
	text, _ := base64.RawURLEncoding.DecodeString(part)
	return base64.RawURLEncoding.EncodeToString([]byte(change(string(text))))
}

// alteration is one thing that was changed in evidence, and how it is named.
type alteration struct {
	name   string
	listed bool // the manifest was made and signed anew by an attacker with a certificate
	change func(t *testing.T, k *evidenceFolder)
	want   string
}

func alterations() []alteration {
	at := func(i int, change func(token string) string) func(*testing.T, *evidenceFolder) {
		return func(_ *testing.T, k *evidenceFolder) {
			list := k.tokens()
			list[i] = change(list[i])
			k.setTokens(list...)
		}
	}
	without := func(places ...int) func(*testing.T, *evidenceFolder) {
		return func(_ *testing.T, k *evidenceFolder) {
			var left []string
			for i, token := range k.tokens() {
				if !slices.Contains(places, i) {
					left = append(left, token)
				}
			}
			k.setTokens(left...)
		}
	}
	text := func(file, before, after string) func(*testing.T, *evidenceFolder) {
		return func(_ *testing.T, k *evidenceFolder) { k.replace(file, before, after) }
	}
	claim := at(1, func(token string) string {
		return edit(token, func(part []string) {
			part[1] = recode(part[1], func(s string) string { return strings.Replace(s, "agent.test", "other.test", 1) })
		})
	})
	algorithm := func(name string) func(*testing.T, *evidenceFolder) {
		return at(1, func(token string) string {
			return edit(token, func(part []string) {
				part[0] = recode(part[0], func(s string) string { return strings.Replace(s, "ES256", name, 1) })
				mac := hmac.New(sha256.New, []byte("public"))
				mac.Write([]byte(part[0] + "." + part[1]))
				part[2] = base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
				if name == "none" {
					part[2] = ""
				}
			})
		})
	}
	doubled := func(_ *testing.T, k *evidenceFolder) { k.setTokens(append(k.tokens(), k.tokens()[1])...) }
	swapped := func(_ *testing.T, k *evidenceFolder) {
		k.files["messages/request"], k.files["messages/reply"] = k.files["messages/reply"], k.files["messages/request"]
	}
	otherReply := func(t *testing.T, k *evidenceFolder) {
		t.Helper()
		claims, _, err := ect.ParseUnverified(k.tokens()[0])
		if err != nil {
			t.Fatal(err)
		}
		k.setTokens(append(k.tokens(), evidencetest.Exchange(t, k.dev, k.dev.Gateway, claims.Workflow, "other")...)...)
		k.files["messages/reply"] = []byte(evidencetest.GotBody + "other")
	}
	return []alteration{
		{"claim changed", false, claim, "invalid_signature"},
		{"claim changed", true, claim, "the token was changed after it was signed"},
		{"bit of a signature", true, at(1, func(token string) string {
			return edit(token, func(part []string) { part[2] = "A" + part[2][1:] + "" })
		}), "invalid_signature"},
		{"algorithm none", true, algorithm("none"), "\n2 NOT VERIFIED execution context token refused: unsupported_alg"},
		{"algorithm HS256", true, algorithm("HS256"), "unsupported_alg"},
		{"middle record removed", false, without(1), "tokens.jwt of DIR was changed: its SHA-256 is "},
		{"middle record removed", true, without(1), "INCOMPLETE: record 2 ("},
		{"first record removed", true, without(0), "names parent "},
		{"last record removed", false, without(2), "is a request without a reply"},
		{"last record removed", true, without(2), "is a request without a reply: the reply's record is missing"},
		{"last two records removed", true, without(1, 2), "is about a message, and no record says what became of it"},
		{"all signed by a CA of the same name", true, func(t *testing.T, k *evidenceFolder) {
			t.Helper()
			k.setTokens(evidencetest.Tokens(t, k.other)...)
		}, "its certificate is not signed by a CA that was given"},
		{"CA exchanged", false, func(_ *testing.T, k *evidenceFolder) { k.files["ca.pem"] = pemOf(k.other.Bundle.Anchors()) }, "holds a CA that you do not trust"},
		{"CA exchanged", true, func(_ *testing.T, k *evidenceFolder) { k.files["ca.pem"] = pemOf(k.other.Bundle.Anchors()) }, "holds a CA that you do not trust"},
		{"token doubled", false, doubled, "token 4 of tokens.jwt of DIR is token 2 again"},
		{"token doubled", true, doubled, "token 4 of tokens.jwt of DIR is token 2 again: it counts once"},
		{"tokens of another exchange added", true, func(t *testing.T, k *evidenceFolder) {
			t.Helper()
			k.setTokens(append(k.tokens(), evidencetest.Tokens(t, k.dev)[:1]...)...)
		}, "lists the workflows "},
		{"reply changed", false, text("messages/reply", "995", "996"), "messages/reply of DIR was changed"},
		{"reply changed", true, text("messages/reply", "995", "996"), "ALTERED: messages/reply: NOT the message of any record"},
		{"number of the reply rounded", true, text("messages/reply", "9007199254740995", "9007199254740996"), "that of the reply is "},
		{"newline behind the reply", true, text("messages/reply", "}}", "}}\n"), "ALTERED: messages/reply: NOT the message of any record"},
		{"request changed", true, text("messages/request", "SendMessage", "CancelTask"), "ALTERED: messages/request: NOT the message of any record"},
		{"request and reply swapped", true, swapped, "is not the reply of the exchange"},
		{"reply removed", false, func(_ *testing.T, k *evidenceFolder) { delete(k.files, "messages/reply") }, "messages/reply of DIR is missing: its manifest lists it"},
		{"text added", true, func(_ *testing.T, k *evidenceFolder) { k.files["paid.txt"] = []byte("paid") }, "paid.txt of DIR was not looked at"},
		{"folder of messages added", true, func(_ *testing.T, k *evidenceFolder) { k.files["messages/more/reply"] = k.files["messages/reply"] }, "messages/more/reply of DIR"},
		{"text before the CA", true, func(_ *testing.T, k *evidenceFolder) { k.replace("ca.pem", "-----BEGIN", "paid\n-----BEGIN") }, "ca.pem of DIR holds more than certificates"},
		{"CA removed", true, func(_ *testing.T, k *evidenceFolder) { delete(k.files, "ca.pem") }, "ca.pem of DIR is missing"},
		{"all removed", true, func(_ *testing.T, k *evidenceFolder) {
			k.files["tokens.jwt"] = nil
			delete(k.files, "messages/request")
			delete(k.files, "messages/reply")
			k.edit = func(list string) string {
				return regexp.MustCompile(`"workflows":\[[^]]*\]`).ReplaceAllString(list, `"workflows":[]`)
			}
		}, "tokens.jwt of DIR holds no token"},
		{"manifest in a folder added", false, func(_ *testing.T, k *evidenceFolder) { k.files["messages/manifest.json"] = []byte("paid") }, "messages/manifest.json of DIR is not in its manifest"},
		{"last token without a newline is forged", true, func(_ *testing.T, k *evidenceFolder) {
			k.files["tokens.jwt"] = append(k.files["tokens.jwt"], "e30.e30.AA"...)
		}, "NOT VERIFIED"},
		{"text behind a token", true, at(2, func(token string) string { return token + " paid" }), "NOT VERIFIED"},
		{"part behind a token", true, at(2, func(token string) string { return token + ".paid" }), "NOT VERIFIED"},
		{"padding behind a token", true, at(2, func(token string) string { return token + "==" }), "NOT VERIFIED"},
		{"roles removed and swapped", true, func(_ *testing.T, k *evidenceFolder) {
			swapped(nil, k)
			k.edit = func(list string) string {
				return strings.NewReplacer(`,"role":"request"`, "", `,"role":"reply"`, "").Replace(list)
			}
		}, "is not the reply of the exchange"},
		{"role unknown", true, func(_ *testing.T, k *evidenceFolder) {
			k.edit = func(list string) string { return strings.Replace(list, `"role":"request"`, `"role":"receipt"`, 1) }
		}, `messages/request of DIR is said to be "receipt"`},
		{"file listed twice", true, func(_ *testing.T, k *evidenceFolder) {
			k.edit = func(list string) string {
				return regexp.MustCompile(`\{[^{}]*"messages/reply"[^{}]*\}`).ReplaceAllString(list, "$0,$0")
			}
		}, "manifest.json of DIR lists messages/reply twice"},
		{"file outside listed", true, func(_ *testing.T, k *evidenceFolder) {
			k.edit = func(list string) string {
				return strings.Replace(list, `"messages/reply"`, `"messages/../../evidence/messages/reply"`, 1)
			}
		}, "messages/../../evidence/messages/reply of DIR is missing"},
		{"reply of another exchange of the workflow", true, otherReply, "is not the reply to messages/request: the record of the reply (out_hash of record "},
		{"file added", false, func(_ *testing.T, k *evidenceFolder) { k.files["messages/more"] = []byte("more") }, "messages/more of DIR is not in its manifest, and was not looked at"},
		{"manifest without a file", false, func(_ *testing.T, k *evidenceFolder) { k.replace("manifest.json", `"role":"reply",`, "") }, "manifest.json of DIR was changed after it was signed"},
		{"workflow of the manifest changed", false, text("manifest.json", `"workflows":["`, `"workflows":["0`), "lists the workflows 0"},
		{"time of the manifest changed", false, text("manifest.json", `"made":"2`, `"made":"1`), "manifest.json of DIR was changed after it was signed"},
		{"maker of the manifest changed", false, text("manifest.json", "/client", "/gateway"), "manifest.json of DIR was changed after it was signed"},
		{"signature of the manifest removed", false, func(_ *testing.T, k *evidenceFolder) { delete(k.files, "manifest.jwt") }, "the manifest is not signed"},
		{"signature of another manifest", false, func(t *testing.T, k *evidenceFolder) {
			t.Helper()
			k.files["manifest.jwt"] = []byte(k.sign(t, []byte("{}")))
		}, "manifest.json of DIR was changed after it was signed"},
		{"manifest signed by another token", false, func(_ *testing.T, k *evidenceFolder) { k.files["manifest.jwt"] = []byte(k.tokens()[0]) }, "manifest.json of DIR was changed after it was signed"},
	}
}

func pemOf(list []*x509.Certificate) []byte {
	return []byte("-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(list[0].Raw) + "\n-----END CERTIFICATE-----\n")
}

// TestVerify_NamesEachAlteration: whatever is changed in a folder of evidence is named and refused, also where the
// attacker can sign lists; and each script of docs/stock-tools.md refuses it, too.
func TestVerify_NamesEachAlteration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sound := newFolder(t, dir)
	ca := filepath.Join(dir, "ours", "ca.pem")
	scripts := stockScripts(t)
	judge := func(t *testing.T, k *evidenceFolder) (code int, output, folder string) {
		t.Helper()
		folder = filepath.Join(t.TempDir(), "evidence")
		k.write(t, folder)
		var out, errs bytes.Buffer
		code = program.Run(t.Context(), Commands, []string{"ect", "verify", "--dir", t.TempDir(), "--ca", ca, folder}, nil, &out, &errs)
		return code, strings.ReplaceAll(out.String()+errs.String(), folder, "DIR"), folder
	}
	t.Run("sound", func(t *testing.T) {
		t.Parallel()
		code, output, folder := judge(t, sound)
		if code != program.ExitOK || !strings.Contains(output, "complete: 3 records verified") {
			t.Errorf("exit code %d: %s", code, output)
		}
		for _, script := range scripts {
			if text, err := exec.CommandContext(t.Context(), script[0], append(script[1:], folder, ca)...).CombinedOutput(); err != nil || !strings.HasPrefix(string(text), "good: 3 tokens, 2 messages") {
				t.Errorf("%s: %v: %s", script[1], err, text)
			}
		}
	})
	for _, a := range alterations() {
		name := a.name
		if a.listed {
			name += ", listed anew"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := sound.copy()
			a.change(t, k)
			if a.listed {
				k.listAnew(t)
			}
			code, output, folder := judge(t, k)
			if code != program.ExitFailed || !strings.Contains(output, a.want) || strings.Contains(output, "complete") {
				t.Errorf("exit code %d, want %d with %q: %s", code, program.ExitFailed, a.want, output)
			}
			for _, script := range scripts {
				if text, err := exec.CommandContext(t.Context(), script[0], append(script[1:], folder, ca)...).CombinedOutput(); err == nil || !strings.Contains(string(text), "BAD") {
					t.Errorf("%s: %v: %s", script[1], err, text)
				}
			}
		})
	}
}

// stockScripts are the scripts of the page, each with its program; none in a short run, which starts no programs.
func stockScripts(t *testing.T) (scripts [][]string) {
	t.Helper()
	if testing.Short() {
		return nil
	}
	page, err := os.ReadFile("../../../docs/stock-tools.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct{ language, program, file string }{{"bash", "sh", "check.sh"}, {"python", "python3", "check.py"}, {"js", "node", "check.mjs"}} {
		_, rest, _ := strings.Cut(string(page), "```"+one.language+"\n")
		code, _, found := strings.Cut(rest, "```")
		if !found {
			t.Fatalf("the page has no script in %s", one.language)
		}
		at := filepath.Join(t.TempDir(), one.file)
		if err := os.WriteFile(at, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, []string{one.program, at})
	}
	return scripts
}

// TestVerify_PartsOfAFile: a file with fewer members than aepbctl send writes is not held for less than it says.
func TestVerify_PartsOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	loose, err := evidencetest.SignerOf(t, dev.Client).Sign(ect.Claims{Act: "send_task", Audience: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	tokens := evidencetest.Tokens(t, dev)
	first, _, _ := ect.ParseUnverified(tokens[0])
	all := `,"ects":["` + strings.Join(tokens, `","`) + `"]}`
	both := `,"ects":["` + strings.Join(append(evidencetest.Exchange(t, dev, dev.Gateway, first.Workflow, " "), tokens...), `","`) + `"]}`
	for text, want := range map[string]string{
		`{"workflow":7,"ects":["` + loose.Compact() + `"]}`:                              "the member workflow of FILE is 7",
		`{"wid":{"paid":true},"ects":["` + loose.Compact() + `"]}`:                       `the member wid of FILE is {"paid":true}`,
		`{"from":"a2a-v1@paid"` + all:                                                    "the version in the member from of FILE was not looked at",
		`{"to":"mcp-v1@paid"` + all:                                                      "the version in the member to of FILE was not looked at",
		`{"translated":` + evidencetest.Inner + all:                                      "complete: 3 records",
		`{"translated":` + evidencetest.GotBody + all:                                    "the member translated of FILE: is not the translation of the exchange",
		`{"request":` + evidencetest.SentBody + `,"ects":["` + tokens[0] + `"]}`:         "is about a message, and no record says what became of it",
		`{"request":` + evidencetest.SentBody + `,"reply":` + evidencetest.GotBody + all: "complete: 3 records",
		`{"exact":{"request":"` + quoted(evidencetest.SentBody+" ") + `"},"request":` + evidencetest.SentBody + `,"reply":` + evidencetest.GotBody + both: "the member reply of FILE: is not the reply to the member request of FILE",
	} {
		file := filepath.Join(t.TempDir(), "sent.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code := program.Run(t.Context(), Commands, []string{"ect", "verify", "--dir", t.TempDir(), "--ca", filepath.Join(dir, "ca.pem"), file}, nil, &out, &errs)
		output := strings.ReplaceAll(out.String()+errs.String(), file, "FILE")
		if !strings.Contains(output, want) || (code == program.ExitOK) != strings.HasPrefix(want, "complete") {
			t.Errorf("%.80s: exit code %d, want %q: %s", text, code, want, output)
		}
	}
}

// TestAttack_Verify_JSONOnATerminal: also as JSON a token of others cannot write to the terminal; a program reads the same JSON.
func TestAttack_Verify_JSONOnATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	token, err := evidencetest.SignerOf(t, dev.Client).Sign(ect.Claims{Act: "send\u009b2J\u202e", Audience: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	var shown terminaltest.Screen
	var piped, errs bytes.Buffer
	args := []string{"ect", "verify", "-o", "json", "--dir", t.TempDir(), "--ca", filepath.Join(dir, "ca.pem"), token.Compact()}
	program.Run(t.Context(), Commands, args, nil, &shown, &errs)
	program.Run(t.Context(), Commands, args, nil, &piped, &errs)
	if text := shown.String(); strings.ContainsAny(text, "\u009b\u202e") || !strings.Contains(text, `\u009b2J\u202e`) || !strings.Contains(piped.String(), "\u202e") {
		t.Errorf("terminal: %q; pipe: %q; %s", text, &piped, &errs)
	}
}

// quoted is text within a JSON string.
func quoted(text string) string { return strings.ReplaceAll(text, `"`, `\"`) }

// TestVerify_SignersOfTranslations: each workload can sign what looks like a translation. An auditor says which gateways it expects, and is
// told who signed.
func TestVerify_SignersOfTranslations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	genuine, forged := evidencetest.Tokens(t, dev), evidencetest.SignedBy(t, dev, dev.Client)
	for name, c := range map[string]struct {
		tokens  []string
		signers []string
		want    string
	}{
		"gateway":           {genuine, nil, "translations signed by: spiffe://aepb.dev/gateway\n"},
		"gateway, expected": {genuine, []string{"--signer", "spiffe://aepb.dev/gateway"}, "complete: 3 records verified"},
		"caller":            {forged, nil, "says that the gateway spiffe://aepb.dev/gateway made it, and spiffe://aepb.dev/client signed it"},
		"caller, expected":  {forged, []string{"--signer", "spiffe://aepb.dev/gateway"}, "is a translation signed by spiffe://aepb.dev/client, which is not a gateway that you named"},
		"another gateway":   {genuine, []string{"--signer", "spiffe://aepb.dev/other"}, "which is not a gateway that you named"},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"ect", "verify", "--dir", t.TempDir(), "--ca", filepath.Join(dir, "ca.pem")}, c.signers...)
		code := program.Run(t.Context(), Commands, append(args, c.tokens...), nil, &out, &errs)
		if text := out.String() + errs.String(); !strings.Contains(text, c.want) || (code == program.ExitOK) != strings.HasPrefix(name, "gateway") {
			t.Errorf("%s: exit code %d, want %q: %s", name, code, c.want, text)
		}
	}
}

// TestAttack_AnyByteOfEvidence: no byte of a folder of evidence can be changed.
func TestAttack_AnyByteOfEvidence(t *testing.T) {
	t.Parallel()
	const tries = 400
	dir := t.TempDir()
	sound := newFolder(t, dir)
	ca := filepath.Join(dir, "ours", "ca.pem")
	names := slices.Sorted(maps.Keys(sound.files))
	random := rand.New(rand.NewPCG(54, 1))
	for range tries {
		k := sound.copy()
		name := names[random.IntN(len(names))]
		text := slices.Clone(k.files[name])
		at := random.IntN(len(text))
		if name == "manifest.jwt" && at == len(text)-1 {
			continue // the newline behind the token
		}
		text[at] ^= byte(1 << random.IntN(7))
		k.files[name] = text
		folder := filepath.Join(t.TempDir(), "evidence")
		k.write(t, folder)
		var out, errs bytes.Buffer
		if code := program.Run(t.Context(), Commands, []string{"ect", "verify", "--dir", dir, "--ca", ca, folder}, nil, &out, &errs); code != program.ExitFailed || strings.Contains(out.String(), "complete") {
			t.Errorf("byte %d of %s is %q and was %q: exit code %d: %s", at, name, text[at], sound.files[name][at], code, &out)
		}
	}
}
