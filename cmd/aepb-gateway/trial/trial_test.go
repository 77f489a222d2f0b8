package trial_test

import (
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/trial"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
)

func wanted(dir string, change func(*trial.Config)) trial.Config {
	c := trial.Config{Dir: dir, TrustDomain: "shop.test", Public: "127.0.0.1:8443", Admin: "127.0.0.1:9443", Metrics: "127.0.0.1:9464"}
	if change != nil {
		change(&c)
	}
	return c
}

// TestCreate_IsComplete: the configuration is one that serve takes, with the examples too, its files belong
// together, and nobody else reads a key.
func TestCreate_IsComplete(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), `a "new" folder`)
	made, err := trial.Create(wanted(dir, func(c *trial.Config) { c.Hosts, c.Public = []string{"gw.shop.test", "10.0.0.7"}, ":8443" }))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "gateway.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.NewReplacer("\n#    # credential:", "\n    credential:", "\n#  ", "\n  ", "\n#oauth:", "\noauth:", "\n#api_keys:", "\napi_keys:").Replace(string(text))
	for name, content := range map[string]string{"as written": string(text), "with all examples": examples} {
		c, err := config.Parse([]byte(content))
		if err == nil {
			err = c.Serve()
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, content)
		}
		if name != "as written" && (len(c.Agents) != 2 || len(c.OAuth) != 1 || c.APIKeys.File == "" || c.Agents["calculator"].Credential == nil) {
			t.Errorf("%s: %d agents", name, len(c.Agents))
		}
		if c.PublicURL != "https://gw.shop.test:8443" || c.Identity.TrustDomain != "shop.test" || !filepath.IsAbs(c.State.Path) || c.Admin.Operators["first"].ID != "spiffe://shop.test/operator" {
			t.Errorf("%s: got %+v", name, c)
		}
	}
	bundle, err := identity.LoadBundle(filepath.Join(dir, "ca.pem"), "shop.test")
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"gateway": "gateway", "client": "operator", "caller": "caller"} {
		key := filepath.Join(dir, name+"-key.pem")
		svid, err := identity.LoadSVID(filepath.Join(dir, name+".pem"), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := bundle.Vouches(svid, time.Now()); err != nil || string(svid.ID) != "spiffe://shop.test/"+id {
			t.Errorf("%s is %s: %v", name, svid.ID, err)
		}
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", key, info.Mode(), err)
		}
		if name == "gateway" {
			named(t, svid.Chain[0], "gw.shop.test", "10.0.0.7", "localhost", "127.0.0.1", "::1")
		}
	}
	var at map[string]string
	addresses, err := os.ReadFile(filepath.Join(dir, "addresses.json"))
	if err != nil || json.Unmarshal(addresses, &at) != nil || at["public"] != "https://127.0.0.1:8443" || at["admin"] != "https://127.0.0.1:9443" {
		t.Errorf("addresses: %s, %v", addresses, err)
	}
	var printed strings.Builder
	if err := made.Print(&printed, func(path string) string { return "<" + path + ">" }); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"  aepb-gateway check-config <" + dir + "/gateway.yaml>\n", "  aepb-gateway serve --config <" + dir + "/gateway.yaml>\n",
		"  aepbctl --dir <" + dir + "> agents list\n",
	} {
		if !strings.Contains(printed.String(), line) {
			t.Errorf("not printed: %s\n%s", line, &printed)
		}
	}
}

func named(t *testing.T, leaf *x509.Certificate, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}

// TestCreate_Refuses what cannot be, says what was expected, and leaves nothing.
func TestCreate_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*trial.Config)
		file   string // that is there before
		want   string
	}{
		"a set-up":         {nil, "gateway.yaml", "holds files already (gateway.yaml), and init overwrites nothing: serve it as it is"},
		"something else":   {nil, "letter.txt", "holds files already (letter.txt), and init overwrites nothing: give a folder of its own with --dir"},
		"a trust domain":   {func(c *trial.Config) { c.TrustDomain = "Shop Test" }, "", "expected a name such as example.test"},
		"a URL as host":    {func(c *trial.Config) { c.Hosts = []string{"https://gw"} }, "", "expected a name or an address without scheme and port"},
		"a host with port": {func(c *trial.Config) { c.Hosts = []string{"gw:8443"} }, "", "expected a name or an address without scheme and port"},
		"no host":          {func(c *trial.Config) { c.Hosts = []string{""} }, "", "is no host name"},
		"a line of YAML":   {func(c *trial.Config) { c.Hosts = []string{"gw\nagents"} }, "", "is no host name"},
		"no port":          {func(c *trial.Config) { c.Public = "127.0.0.1" }, "", `--addr "127.0.0.1" is no address to listen at: expected HOST:PORT`},
		"any port":         {func(c *trial.Config) { c.Admin = "127.0.0.1:0" }, "", "--admin-addr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			above := t.TempDir()
			dir := filepath.Join(above, "new")
			if c.file != "" {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, c.file), []byte("before"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := trial.Create(wanted(dir, c.change))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			left, err := filepath.Glob(filepath.Join(above, "*", "*"))
			if hidden, _ := filepath.Glob(filepath.Join(above, ".*")); err != nil || len(hidden) > 0 || c.file == "" && len(left) > 0 || c.file != "" && len(left) != 1 {
				t.Errorf("left: %v, %v, %v", left, hidden, err)
			}
		})
	}
}

// TestCreate_TakesAnEmptyFolder, which somebody has made with rights of its own.
func TestCreate_TakesAnEmptyFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := trial.Create(wanted(dir, nil)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
