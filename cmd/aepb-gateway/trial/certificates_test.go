package trial_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/trial"
	"github.com/aepb/aepb-gateway/ect/identity"
)

const oneDay = 24 * time.Hour

// word leaves paths as they are: those of tests have no spaces.
func word(path string) string { return path }

// madeFolder is a set-up that was made now.
func madeFolder(t *testing.T) (dir string, made time.Time) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "gw")
	made = time.Now()
	if _, err := trial.Create(wanted(dir, nil)); err != nil {
		t.Fatal(err)
	}
	return dir, made
}

// at opens a folder at an instant.
func at(t *testing.T, dir string, instant time.Time) *trial.Folder {
	t.Helper()
	f, err := trial.Open(dir, func() time.Time { return instant })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[file.Name()] = string(text)
	}
	return out
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// vouched loads a pair of the folder, which ca.pem must vouch for.
func vouched(t *testing.T, dir, name string, instant time.Time) *identity.SVID {
	t.Helper()
	svid, err := identity.LoadSVID(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := identity.LoadAnchors(filepath.Join(dir, "ca.pem"))
	if err == nil {
		err = bundle.Vouches(svid, instant)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return svid
}

func TestIssue_MakesEachKind(t *testing.T) {
	t.Parallel()
	dir, now := madeFolder(t)
	f := at(t, dir, now)
	made, err := f.Issue([]trial.Request{
		{Kind: trial.KindCaller, Name: "Bob_1.x"},
		{Kind: trial.KindAgent, Name: "calc", Hosts: []string{"calc.shop.test", "10.0.0.9"}},
		{Kind: trial.KindAgent, Name: "near"},
		{Kind: trial.KindOperator, Name: "ann", Roles: []string{"operator", "auditor"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"Bob_1.x": "Bob_1.x", "calc": "agents/calc", "near": "agents/near", "ann": "operators/ann"} {
		svid := vouched(t, dir, name, now)
		if string(svid.ID) != "spiffe://shop.test/"+id {
			t.Errorf("%s is %s", name, svid.ID)
		}
		if info, err := os.Stat(filepath.Join(dir, name+"-key.pem")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if !slices.Equal(svid.Chain[0].ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) {
			t.Errorf("%s is for %v", name, svid.Chain[0].ExtKeyUsage)
		}
	}
	named(t, vouched(t, dir, "calc", now).Chain[0], "calc.shop.test", "10.0.0.9")
	named(t, vouched(t, dir, "near", now).Chain[0], "localhost", "127.0.0.1", "::1")
	if vouched(t, dir, "calc", now).Chain[0].VerifyHostname("localhost") == nil {
		t.Error("calc is also localhost")
	}
	var printed strings.Builder
	if err := f.PrintIssued(&printed, word, made); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`  callers: ["spiffe://shop.test/Bob_1.x"]`, `      id: "spiffe://shop.test/agents/calc"`,
		`      "ann": {id: "spiffe://shop.test/operators/ann", roles: [operator, auditor]}`,
		"  aepbctl --dir " + dir + " --cert " + dir + "/ann.pem --key " + dir + "/ann-key.pem agents list",
		"  aepbctl --dir " + dir + " --cert " + dir + "/Bob_1.x.pem --key " + dir + "/Bob_1.x-key.pem send --to AGENT --text hello",
	} {
		if !strings.Contains(printed.String(), line+"\n") {
			t.Errorf("not printed: %s\n%s", line, &printed)
		}
	}
}

// TestIssue_NamesAnAgentOfTheConfiguration: the printed call is to an agent that speaks A2A, else to the first one.
func TestIssue_NamesAnAgentOfTheConfiguration(t *testing.T) {
	t.Parallel()
	dir, now := madeFolder(t)
	text := contents(t, dir)["gateway.yaml"]
	f := at(t, dir, now)
	made, err := f.Issue([]trial.Request{{Kind: trial.KindCaller, Name: "bob"}})
	if err != nil {
		t.Fatal(err)
	}
	const tools, words = "\n  calc: {endpoints: [{binding: mcp-v1, url: 'https://a.test/mcp'}]}", "\n  talk: {endpoints: [{binding: a2a-v1, url: 'https://b.test/'}]}"
	for name, one := range map[string]struct{ agents, want string }{
		"A2A":                     {tools + words, "send --to talk --text hello\n"},
		"MCP alone":               {tools, "send --to calc --tool TOOL --args '{}'\n"},
		"no agent":                {"", "send --to AGENT --text hello\n"},
		"a file with a mistake":   {"\n  calc: 7", "send --to AGENT --text hello\n"},
		"the text of YAML is bad": {"\n\t:", "send --to AGENT --text hello\n"},
	} {
		write(t, dir, "gateway.yaml", text+one.agents+"\n")
		var printed strings.Builder
		if err := f.PrintIssued(&printed, word, made); err != nil || !strings.HasSuffix(printed.String(), one.want) {
			t.Errorf("%s: %v\n%s", name, err, &printed)
		}
	}
}

// TestAttack_NamesOfCertificates: what is refused says why and leaves the folder as it is, also if other names were
// good.
func TestAttack_NamesOfCertificates(t *testing.T) {
	t.Parallel()
	dir, now := madeFolder(t)
	if _, err := at(t, dir, now).Issue([]trial.Request{{Kind: trial.KindCaller, Name: "bob"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "bob.pem")); err != nil { // its key is still there
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "caller.pem"), filepath.Join(dir, "link.pem")); err != nil {
		t.Fatal(err)
	}
	caller := func(name string) trial.Request { return trial.Request{Kind: trial.KindCaller, Name: name} }
	good := caller("good")
	for name, one := range map[string]struct {
		request trial.Request
		want    string
	}{
		"nothing":           {caller(""), "is not a valid name"},
		"a folder above":    {caller("../bob"), "is not a valid name"},
		"the folder above":  {caller(".."), "is not a valid name"},
		"a folder below":    {caller("a/b"), "is not a valid name"},
		"another separator": {caller(`a\b`), "is not a valid name"},
		"a hidden file":     {caller(".bob"), "is not a valid name"},
		"a flag":            {caller("-bob"), "is not a valid name"},
		"a line":            {caller("bob\n"), "is not a valid name"},
		"not ASCII":         {caller("böb"), "is not a valid name"},
		"too long":          {caller(strings.Repeat("a", 64)), "1 to 63"},
		"a key's file":      {caller("gateway-key"), "are keys"},
		"the gateway":       {caller("gateway"), "the set-up itself has this name"},
		"on other disks":    {caller("Gateway"), "the set-up itself has this name"},
		"the CA":            {caller("ca"), "the set-up itself has this name"},
		"first operator":    {caller("operator"), "the set-up itself has this name"},
		"no credentials":    {caller("anonymous"), "the set-up itself has this name"},
		"a key is there":    {caller("bob"), "bob-key.pem is there already, and is not overwritten"},
		"a link is there":   {caller("link"), "link.pem is there already, and is not overwritten"},
		"twice":             {good, "asked for twice"},
		"large letters":     {trial.Request{Kind: trial.KindAgent, Name: "Calc"}, "expected calc"},
		"a URL as host":     {trial.Request{Kind: trial.KindAgent, Name: "calc", Hosts: []string{"https://calc"}}, "is no host name"},
		"no role":           {trial.Request{Kind: trial.KindOperator, Name: "ann"}, "add --role with one of viewer, operator, approver, auditor"},
		"another role":      {trial.Request{Kind: trial.KindOperator, Name: "ann", Roles: []string{"king"}}, `"king" is no role`},
	} {
		before := contents(t, dir)
		_, err := at(t, dir, now).Issue([]trial.Request{good, one.request})
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: got %v, want %s", name, err, one.want)
		}
		if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
			t.Errorf("%s changed the folder:\n%s", name, diff)
		}
	}
}

// TestIssue_NeedsTheKeyOfTheCA, and renewals do. What issues nothing does not read it.
func TestIssue_NeedsTheKeyOfTheCA(t *testing.T) {
	t.Parallel()
	dir, now := madeFolder(t)
	keyFile := filepath.Join(dir, "ca-key.pem")
	for name, one := range map[string]struct{ key, want string }{
		"another key":    {contents(t, dir)["caller-key.pem"], "ca-key.pem is not the key of a certificate in ca.pem"},
		"encrypted":      {string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})), "is encrypted: put the plain one there"},
		"encrypted, old": {string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("x")})), "is encrypted: put the plain one there"},
		"no key":         {"x", "holds no PEM block"},
		"away":           {"", "the key of the CA, ca-key.pem, is not there"},
	} {
		write(t, dir, "ca-key.pem", one.key)
		if one.key == "" {
			if err := os.Remove(keyFile); err != nil {
				t.Fatal(err)
			}
		}
		before, f := contents(t, dir), at(t, dir, now)
		_, issuing := f.Issue([]trial.Request{{Kind: trial.KindCaller, Name: "bob"}})
		_, renewing := f.Renew([]string{"caller"})
		for what, err := range map[string]error{"issue": issuing, "renew": renewing, "renew the CA": f.RenewCA()} {
			if err == nil || !strings.Contains(err.Error(), one.want) {
				t.Errorf("%s, %s: got %v, want %s", name, what, err, one.want)
			}
		}
		if done, err := f.Renew(nil); err != nil || len(done.Issued) > 0 {
			t.Errorf("%s, nothing to renew: %v, %v", name, done, err)
		}
		if err := f.PrintList(new(strings.Builder), new(strings.Builder)); err != nil {
			t.Errorf("%s, list: %v", name, err)
		}
		if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
			t.Errorf("%s changed the folder:\n%s", name, diff)
		}
	}
}

// TestIssue_RefusesAnEndedCA: what it signs is refused everywhere.
func TestIssue_RefusesAnEndedCA(t *testing.T) {
	t.Parallel()
	dir, made := madeFolder(t)
	f := at(t, dir, made.Add(366*oneDay))
	request := []trial.Request{{Kind: trial.KindCaller, Name: "bob"}}
	if _, err := f.Issue(request); err == nil || !strings.Contains(err.Error(), "make a new CA") {
		t.Errorf("got %v", err)
	}
	if err := f.RenewCA(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Issue(request); err != nil {
		t.Fatal(err)
	}
	vouched(t, dir, "bob", made.Add(366*oneDay))
}
