package identity

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}

func open(t *testing.T, dir string, now time.Time) *Development {
	t.Helper()
	d, err := LoadOrCreate(dir, domain, at(now))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLoadOrCreate_Creates(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "folder")
	d := open(t, dir, noon)
	if d.Gateway.ID != "spiffe://example.org/gateway" || d.Client.ID != "spiffe://example.org/client" {
		t.Errorf("%q, %q", d.Gateway.ID, d.Client.ID)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if err := d.Gateway.Chain[0].VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	before := contents(t, dir)
	for name, mode := range map[string]fs.FileMode{
		AnchorFile: publicMode, AnchorKeyFile: secretMode, GatewayFile: publicMode, GatewayKeyFile: secretMode,
		ClientFile: publicMode, ClientKeyFile: secretMode, BundleFile: publicMode,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	if len(before) != 7 {
		t.Errorf("%d files", len(before))
	}
	open(t, dir, noon.Add(59*24*time.Hour)) // not yet in the last third
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("opening again changed files:\n%s", diff)
	}
	written, err := ParseBundle(domain, []byte(before[BundleFile]))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := written.verify(d.Client.Chain, noon); err != nil {
		t.Error(err)
	}
	read, err := LoadBundle(filepath.Join(dir, AnchorFile), domain)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := read.verify(d.Client.Chain, noon); err != nil {
		t.Error(err)
	}
}

func TestLoadOrCreate_Renews(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	tests := []struct {
		name           string
		after          time.Duration
		leafs, anchors bool
	}{
		{"young", 10 * day, false, false},
		{"leafs in their last third", 65 * day, true, false},
		{"leafs expired", 100 * day, true, false},
		{"anchor in its last third", 300 * day, true, true},
		{"all expired", 800 * day, true, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first := open(t, dir, noon)
			before := contents(t, dir)
			later := noon.Add(test.after)
			second := open(t, dir, later)
			after := contents(t, dir)
			for name, want := range map[string]bool{
				GatewayFile: test.leafs, ClientFile: test.leafs, AnchorFile: test.anchors, BundleFile: test.anchors,
				AnchorKeyFile: false, GatewayKeyFile: false, ClientKeyFile: false,
			} {
				if changed := before[name] != after[name]; changed != want {
					t.Errorf("%s changed: %v", name, changed)
				}
			}
			if _, _, err := second.Bundle.verify(second.Gateway.Chain, later); err != nil {
				t.Error(err)
			}
			if _, _, err := second.Bundle.verify(first.Gateway.Chain, noon); err != nil {
				t.Errorf("former evidence is lost: %v", err)
			}
		})
	}
}

func TestLoadOrCreate_Repairs(t *testing.T) {
	t.Parallel()
	tests := map[string]func(dir string, files map[string]string) error{
		"leaf removed":     func(dir string, _ map[string]string) error { return os.Remove(filepath.Join(dir, GatewayFile)) },
		"leaf key removed": func(dir string, _ map[string]string) error { return os.Remove(filepath.Join(dir, ClientKeyFile)) },
		"leaf of another": func(dir string, files map[string]string) error {
			return os.WriteFile(filepath.Join(dir, ClientFile), []byte(files[GatewayFile]), publicMode)
		},
		"leaf and key of another": func(dir string, files map[string]string) error {
			if err := os.WriteFile(filepath.Join(dir, ClientFile), []byte(files[GatewayFile]), publicMode); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, ClientKeyFile), []byte(files[GatewayKeyFile]), secretMode)
		},
		"leaf cut short": func(dir string, files map[string]string) error {
			return os.WriteFile(filepath.Join(dir, GatewayFile), []byte(files[GatewayFile][:100]), publicMode)
		},
		"bundle removed": func(dir string, _ map[string]string) error { return os.Remove(filepath.Join(dir, BundleFile)) },
		"anchor and its key removed": func(dir string, _ map[string]string) error {
			if err := os.Remove(filepath.Join(dir, AnchorFile)); err != nil {
				return err
			}
			return os.Remove(filepath.Join(dir, AnchorKeyFile))
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			open(t, dir, noon)
			if err := damage(dir, contents(t, dir)); err != nil {
				t.Fatal(err)
			}
			d := open(t, dir, noon)
			for path, s := range map[string]*SVID{"/gateway": d.Gateway, "/client": d.Client} {
				if _, _, err := d.Bundle.verify(s.Chain, noon); err != nil || string(s.ID) != "spiffe://"+domain+path {
					t.Errorf("%s is %q, %v", path, s.ID, err)
				}
			}
			mended := contents(t, dir)
			open(t, dir, noon)
			if diff := cmp.Diff(mended, contents(t, dir)); diff != "" {
				t.Errorf("not settled:\n%s", diff)
			}
		})
	}
}

func TestLoadOrCreate_Refuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		domain string
		damage func(dir string) error
	}{
		"lost CA key":        {domain, func(dir string) error { return os.Remove(filepath.Join(dir, AnchorKeyFile)) }},
		"other trust domain": {"other.org", func(string) error { return nil }},
		"bad trust domain":   {"Not A Domain", func(string) error { return nil }},
		"CA key of another": {domain, func(dir string) error {
			return os.Rename(filepath.Join(dir, ClientKeyFile), filepath.Join(dir, AnchorKeyFile))
		}},
		"CA key is no key": {domain, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, AnchorKeyFile), []byte("x"), secretMode)
		}},
		"CA is no PEM": {domain, func(dir string) error { return os.WriteFile(filepath.Join(dir, AnchorFile), []byte("x"), publicMode) }},
		"a leaf key is no key": {domain, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, GatewayKeyFile), []byte("x"), secretMode)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			open(t, dir, noon)
			if err := test.damage(dir); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			if _, err := LoadOrCreate(dir, test.domain, at(noon)); err == nil {
				t.Error("accepted")
			}
			if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
				t.Errorf("and changed files:\n%s", diff)
			}
		})
	}
}

// Many at once, on an empty folder: whatever mixture of files results, every
// one of them holds identities that all the others trust.
func TestLoadOrCreate_Concurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := make([]*Development, 8)
	var group sync.WaitGroup
	for i := range made {
		group.Go(func() {
			d, err := LoadOrCreate(dir, domain, at(noon))
			if err != nil {
				t.Error(err)
			}
			made[i] = d
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	settled := open(t, dir, noon)
	for _, d := range append(made, settled) {
		for _, other := range made {
			for _, s := range []*SVID{d.Gateway, d.Client} {
				if _, _, err := other.Bundle.verify(s.Chain, noon); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name := range contents(t, dir) {
		if strings.HasPrefix(name, ".") {
			t.Errorf("left behind: %s", name)
		}
	}
}

func TestSVID_PEMRoundTrip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "a.pem"), filepath.Join(dir, "a-key.pem")
	a := authority(t, domain)
	s := issue(t, a, "/agents/a", SVIDRequest{})
	if err := s.WritePEM(cert, key); err != nil {
		t.Fatal(err)
	}
	got, err := LoadSVID(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != s.ID || !got.Chain[0].Equal(s.Chain[0]) || !sameKey(got.Key, s.Chain[0]) {
		t.Errorf("read %q", got.ID)
	}
	if info, err := os.Stat(key); err != nil || info.Mode() != secretMode {
		t.Errorf("key file: %v, %v", info.Mode(), err)
	}
	other := issue(t, a, "/agents/b", SVIDRequest{})
	if err := other.WritePEM(filepath.Join(dir, "b.pem"), key); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadSVID(cert, key); err == nil {
		t.Error("read a certificate with another's key")
	}
	if err := (&SVID{ID: "nobody"}).WritePEM(cert, key); err == nil {
		t.Error("wrote an SVID that is none")
	}
}

func TestBundle_JWKS(t *testing.T) {
	t.Parallel()
	a := authority(t, domain)
	text, err := bundleOf(t, a).MarshalJWKS()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(key map[string]any)) string {
		var set struct {
			Keys []map[string]any `json:"keys"`
		}
		if err := json.Unmarshal(text, &set); err != nil {
			t.Fatal(err)
		}
		change(set.Keys[0])
		out, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	chain := issue(t, a, "/gateway", SVIDRequest{}).Chain
	other, err := webKeyOf(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		text string
		ok   bool
	}{
		"as written":         {string(text), true},
		"unknown members":    {edit(func(k map[string]any) { k["alg"] = "ES256" }), true},
		"another use beside": {strings.Replace(string(text), `"keys": [`, `"keys": [{"use":"jwt-svid","kty":"EC","kid":"k"},`, 1), true},
		"only another use":   {edit(func(k map[string]any) { k["use"] = "jwt-svid" }), false},
		"key of another":     {edit(func(k map[string]any) { k["x"] = other.X }), false},
		"other key type":     {edit(func(k map[string]any) { k["kty"] = "RSA" }), false},
		"no certificate":     {edit(func(k map[string]any) { delete(k, "x5c") }), false},
		"two certificates":   {edit(func(k map[string]any) { c := k["x5c"].([]any)[0]; k["x5c"] = []any{c, c} }), false},
		"broken certificate": {edit(func(k map[string]any) { k["x5c"] = []string{"AAAA"} }), false},
		"empty set":          {`{"keys":[]}`, false},
		"no set":             {`[]`, false},
		"too large":          {`{"keys":[]` + strings.Repeat(" ", maxBundle) + `}`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseBundle(domain, []byte(test.text))
			if (err == nil) != test.ok {
				t.Fatalf("parse: %v", err)
			}
			if !test.ok {
				return
			}
			if _, _, err := got.verify(chain, noon); err != nil {
				t.Error(err)
			}
		})
	}
}

// A development folder that was there with wide permissions is closed, its keys
// too; one with files of others in it is refused, in words.
func TestAttack_ReadKeysOfAnOpenFolder(t *testing.T) {
	t.Parallel()
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	dir := filepath.Join(t.TempDir(), "dev")
	open(t, dir, noon)
	for path, wide := range map[string]os.FileMode{dir: 0o777, filepath.Join(dir, AnchorKeyFile): 0o644, filepath.Join(dir, GatewayKeyFile): 0o666} {
		if err := os.Chmod(path, wide); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, noon)
	if mode(dir) != 0o700 || mode(filepath.Join(dir, AnchorKeyFile)) != 0o600 || mode(filepath.Join(dir, GatewayKeyFile)) != 0o600 {
		t.Errorf("others may still look: %v %v", mode(dir), mode(filepath.Join(dir, AnchorKeyFile)))
	}
	shared := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.Mkdir(shared, 0o755), os.WriteFile(filepath.Join(shared, "notes"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreate(shared, domain, at(noon)); !errors.Is(err, errOpenFolder) || mode(shared) != 0o755 {
		t.Errorf("a shared folder: %v, %v", err, mode(shared))
	}
}

// TestLoadAuthority_Renewed: what either key signed is vouched for, the folder can be opened by LoadOrCreate, and a
// renewal that was stopped after ca.pem leaves the former key in force.
func TestLoadAuthority_Renewed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := open(t, dir, noon)
	former, err := LoadAuthority(dir, at(noon))
	if err != nil {
		t.Fatal(err)
	}
	next, err := former.Renewed()
	if err != nil {
		t.Fatal(err)
	}
	key := contents(t, dir)[AnchorKeyFile]
	if err := next.Save(dir); err != nil {
		t.Fatal(err)
	}
	renewed := contents(t, dir)[AnchorKeyFile]
	for what, text := range map[string]string{"whole": renewed, "stopped": key} {
		if err := os.WriteFile(filepath.Join(dir, AnchorKeyFile), []byte(text), secretMode); err != nil {
			t.Fatal(err)
		}
		loaded, err := LoadAuthority(dir, at(noon))
		if err != nil {
			t.Fatal(what, err)
		}
		for _, s := range []*SVID{made.Client, issue(t, former, "/a", SVIDRequest{}), issue(t, loaded, "/a", SVIDRequest{})} {
			if err := bundleOf(t, loaded).Vouches(s, noon); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if d := open(t, dir, noon); d.Bundle.Vouches(made.Client, noon) != nil {
			t.Errorf("%s: LoadOrCreate does not trust the former anchor", what)
		}
	}
	if err := bundleOf(t, former).Vouches(issue(t, next, "/a", SVIDRequest{}), noon); err == nil {
		t.Error("the new CA has the former key")
	}
	ended := &Authority{domain: next.domain, key: next.key, anchors: next.anchors, now: at(noon.Add(authorityLife + time.Second))}
	if _, err := ended.Issue("/a", SVIDRequest{}); !errors.Is(err, errAuthorityEnded) {
		t.Errorf("an ended CA: %v", err)
	}
}

// TestSVID_CreatePEM replaces neither of its files, and leaves no half.
func TestSVID_CreatePEM(t *testing.T) {
	t.Parallel()
	a := authority(t, domain)
	for name, there := range map[string]string{"the certificate": "a.pem", "the key": "a-key.pem", "nothing": ""} {
		dir := t.TempDir()
		if there != "" {
			if err := os.WriteFile(filepath.Join(dir, there), []byte("before"), secretMode); err != nil {
				t.Fatal(err)
			}
		}
		before := contents(t, dir)
		err := issue(t, a, "/a", SVIDRequest{}).CreatePEM(filepath.Join(dir, "a.pem"), filepath.Join(dir, "a-key.pem"))
		after := contents(t, dir)
		switch {
		case there == "" && (err != nil || len(after) != 2):
			t.Errorf("%s is there: %v", name, err)
		case there != "" && (!errors.Is(err, fs.ErrExist) || !cmp.Equal(before, after)):
			t.Errorf("%s is there: %v, %v", name, err, cmp.Diff(before, after))
		}
	}
}
