package trial

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
)

//go:embed gateway.yaml.txt
var texts embed.FS

const (
	folderMode fs.FileMode = 0o700
	secretMode fs.FileMode = 0o600
)

// Config is what the set-up is to be.
type Config struct {
	Dir         string   // must not be there, or be empty
	TrustDomain string   // such as example.test
	Hosts       []string // names and addresses of the gateway besides localhost; the first one is that of public_url
	Public      string   // host:port of the listeners
	Admin       string
	Metrics     string
}

// Trial is a set-up that was written.
type Trial struct {
	Config

	PublicURL string
	Until     string // the day on which the certificates end
}

// Create writes the set-up, all of it or, on an error, nothing.
func Create(c Config) (*Trial, error) {
	t := &Trial{Config: c}
	if err := t.place(); err != nil {
		return nil, err
	}
	made, err := os.MkdirTemp(filepath.Dir(t.Dir), "."+filepath.Base(t.Dir)+"-*")
	if err != nil {
		return nil, fmt.Errorf("the folder for %s cannot be written to: %w", t.Dir, err)
	}
	if err = t.write(made); err == nil {
		err = t.install(made)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(made))
	}
	return t, nil
}

// place judges what was asked for, and says where everything will be.
func (t *Trial) place() error {
	var err error
	if t.Dir, err = filepath.Abs(t.Dir); err != nil {
		return err
	}
	if err := free(t.Dir); err != nil {
		return err
	}
	for _, one := range []struct{ flag, at string }{{"--addr", t.Public}, {"--admin-addr", t.Admin}, {"--metrics-addr", t.Metrics}} {
		if _, port, err := net.SplitHostPort(one.at); err != nil || port == "" || port == "0" {
			return fmt.Errorf("%s %q is no address to listen at: expected HOST:PORT with a port of its own, such as 127.0.0.1:8443", one.flag, one.at)
		}
	}
	if err := checkHosts(t.Hosts); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(t.Public)
	if err != nil {
		return err
	}
	t.PublicURL = "https://" + net.JoinHostPort(append(t.Hosts, "localhost")[0], port)
	return os.MkdirAll(filepath.Dir(t.Dir), folderMode)
}

// free refuses a folder that holds anything: keys that were overwritten are lost.
func free(dir string) error {
	content, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("the folder %s cannot be used: %w", dir, err)
	case len(content) == 0:
		return nil
	}
	const most = 4
	names := make([]string, 0, most+1)
	for _, file := range content[:min(most, len(content))] {
		names = append(names, file.Name())
	}
	if len(content) > most {
		names = append(names, fmt.Sprintf("%d more", len(content)-most))
	}
	todo := "give a folder of its own with --dir"
	if slices.ContainsFunc(content, func(file fs.DirEntry) bool { return file.Name() == "gateway.yaml" }) {
		todo = "serve it as it is, or give another folder with --dir, or move this one away first"
	}
	return fmt.Errorf("%s holds files already (%s), and init overwrites nothing: %s", dir, strings.Join(names, ", "), todo)
}

func checkHosts(hosts []string) error {
	for _, host := range hosts {
		if host == "" || strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:") != "" || strings.Contains(host, ":") && !isAddress(host) {
			return fmt.Errorf("--host %q is no host name: expected a name or an address without scheme and port, such as gw.example.com", host)
		}
	}
	return nil
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// write puts all files into a folder that is not the one they are for yet.
func (t *Trial) write(dir string) error {
	authority, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: t.TrustDomain, Now: time.Now})
	if err != nil {
		return fmt.Errorf("--trust-domain %q: expected a name such as example.test: %w", t.TrustDomain, err)
	}
	if err := authority.Save(dir); err != nil {
		return err
	}
	for _, one := range []struct {
		path, name string
		names      identity.SVIDRequest
	}{
		{"/gateway", "gateway", t.names()},
		{"/operator", "client", identity.SVIDRequest{}},
		{"/caller", "caller", identity.SVIDRequest{}},
	} {
		svid, err := authority.Issue(one.path, one.names)
		if err != nil {
			return err
		}
		if err := svid.WritePEM(filepath.Join(dir, one.name+".pem"), filepath.Join(dir, one.name+"-key.pem")); err != nil {
			return err
		}
		t.Until = svid.Expires().UTC().Format(time.DateOnly)
	}
	addresses, err := json.Marshal(map[string]string{"public": "https://" + reached(t.Public), "admin": "https://" + reached(t.Admin)})
	if err != nil {
		return err
	}
	configuration, err := texts.ReadFile("gateway.yaml.txt")
	return errors.Join(err,
		os.WriteFile(filepath.Join(dir, "addresses.json"), append(addresses, '\n'), secretMode),
		os.WriteFile(filepath.Join(dir, "gateway.yaml"), []byte(os.Expand(string(configuration), t.value)), secretMode),
	)
}

// names are those under which clients that judge by host name find the gateway.
func (t *Trial) names() identity.SVIDRequest {
	all := slices.Concat(loopback, t.Hosts)
	for _, at := range []string{t.Public, t.Admin} {
		if host, _, err := net.SplitHostPort(at); err == nil {
			all = append(all, host)
		}
	}
	var request identity.SVIDRequest
	addHosts(&request, all)
	return request
}

// loopback is how a program of this machine reaches a server of it.
var loopback = []string{"localhost", "127.0.0.1", "::1"}

// addHosts adds names and addresses to those that a certificate is to have, each once.
func addHosts(request *identity.SVIDRequest, hosts []string) {
	for _, host := range hosts {
		address := net.ParseIP(host)
		switch {
		case host == "" || address.IsUnspecified() || slices.ContainsFunc(request.IPs, address.Equal) || slices.Contains(request.DNSNames, host):
		case address != nil:
			request.IPs = append(request.IPs, address)
		default:
			request.DNSNames = append(request.DNSNames, host)
		}
	}
}

// reached is where this machine reaches a listener.
func reached(at string) string {
	host, port, err := net.SplitHostPort(at)
	if address := net.ParseIP(host); err == nil && (host == "" || address.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return at
}

// install puts the folder in its place.
func (t *Trial) install(made string) error {
	if err := os.Remove(t.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty one
		return fmt.Errorf("%s cannot be replaced: %w", t.Dir, err)
	}
	return os.Rename(made, t.Dir)
}

// value is what stands in the configuration for a name in ${}.
func (t *Trial) value(name string) string {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "file":
		return quoted(t.File(rest))
	case "id":
		return quoted(t.ID(rest))
	case "url": // in a comment
		return t.PublicURL
	case "until":
		return t.Until
	}
	return quoted(map[string]string{
		"public_url": t.PublicURL, "public": t.Public, "admin": t.Admin, "metrics": t.Metrics, "dir": t.Dir, "trust_domain": t.TrustDomain,
	}[name])
}

// quoted is text as YAML, and JSON, have it in double quotes.
func quoted(text string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a text: it cannot fail
	return strings.TrimSuffix(out.String(), "\n")
}

// File is the path of a file of the set-up.
func (t *Trial) File(name string) string { return filepath.Join(t.Dir, name) }

// ID returns a SPIFFE id in the trust domain.
func (t *Trial) ID(name string) string { return "spiffe://" + t.TrustDomain + "/" + name }

// Print says what was made and how to go on. word writes a path so that a shell reads it as one word.
func (t *Trial) Print(w io.Writer, word func(string) string) error {
	dir, file := word(t.Dir), func(name string) string { return word(t.File(name)) }
	_, err := fmt.Fprintf(w, `made %[1]s for the trust domain %[2]s, valid until %[3]s:
  gateway.yaml               the configuration, with comments
  ca.pem, ca-key.pem         the CA that all of these trust
  gateway.pem, …-key.pem     the gateway, %[4]s
  client.pem, …-key.pem      the first operator, %[5]s
  caller.pem, …-key.pem      a first caller, %[6]s

check it:
  aepb-gateway check-config %[7]s
start it, and leave it running:
  aepb-gateway serve --config %[7]s
then, in another terminal:
  aepbctl --dir %[1]s agents list
  aepbctl --dir %[1]s doctor --config %[7]s
  curl --cacert %[8]s --cert %[9]s --key %[10]s %[11]s/.well-known/aepb

Next, list an agent in gateway.yaml, which is read again by itself, and call it as the first
caller: aepbctl --dir %[1]s --cert %[9]s --key %[10]s send NAME hello
`, dir, t.TrustDomain, t.Until, t.ID("gateway"), t.ID("operator"), t.ID("caller"),
		file("gateway.yaml"), file("ca.pem"), file("caller.pem"), file("caller-key.pem"), "https://"+reached(t.Public))
	return err
}
