package advice

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// Facts are what is known beside the configuration itself.
type Facts struct {
	// Readers says which other users may read a file.
	Readers func(file string) Readers
	// Certificate is the one that callers see; nil: it is not known.
	Certificate *x509.Certificate
	// HandlesCritical: a rule says what becomes of a workflow after a critical error.
	HandlesCritical bool
}

// Readers are users who may read a file besides its owner.
type Readers struct {
	Mode          fs.FileMode
	Group, Others bool
}

// Warning is what an operator should look at.
type Warning struct{ Found, Remedy string }

func (w Warning) String() string { return w.Found + Arrow + w.Remedy }

// Arrow stands between what was found and what to do about it.
const Arrow = " -> "

// Warnings finds what is allowed and probably not meant.
func Warnings(c config.Config, f Facts) []Warning {
	var found []Warning
	warn := func(remedy, format string, args ...any) {
		found = append(found, Warning{fmt.Sprintf(format, args...), remedy})
	}
	for _, secret := range secrets(c) {
		if r := f.Readers(secret.file); r.Group || r.Others {
			warn("chmod 600 "+secret.file, "%s: %s can read the secret in %s (mode %04o)", secret.key, r.words(), secret.file, r.Mode)
		}
	}
	if host, ok := hostOf(c.PublicURL); ok && f.Certificate != nil && f.Certificate.VerifyHostname(host) != nil {
		warn("have the name put into the certificate, or name the gateway in public_url as its certificate does",
			"public_url: callers are sent to %s, and the certificate is for %s: they will refuse it", host, namesOf(f.Certificate))
	}
	if at := c.Listen.Admin; onAllAddresses(at) {
		warn("name one address, such as 127.0.0.1:9443, or let a firewall keep others away", "listen.admin: the API of operators listens on all addresses of this machine (%s)", at)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		if len(c.Agents[name].Callers) == 0 {
			warn("name callers", "agents.'%s' has no callers, so every call is refused", name)
		}
	}
	if len(c.Admin.Operators) > 0 && !f.HandlesCritical {
		warn("add - {severity: critical, role: operator}", "policy.approvals has no rule about critical errors, so workflows go on after one")
	}
	return found
}

func (r Readers) words() string {
	if r.Others {
		return "all users of this machine"
	}
	return "the group of the file"
}

// secret is a file with a secret, and the key that names it.
type secret struct{ key, file string }

// secrets are all files with secrets that the configuration names, and the key that is made
// beside the state.
func secrets(c config.Config) []secret {
	r := c.State.Redis
	all := []secret{
		{"identity.key", c.Identity.Key},
		{"tls.key", c.TLS.Key},
		{"ainp.key", c.AINP.Key},
		{"api_keys.file", c.APIKeys.File},
		{"state.key", c.State.Key},
		{"state.redis.password_file", r.PasswordFile},
		{"state.redis.sentinel_password_file", r.SentinelPasswordFile},
		{"state.redis.tls.key", r.TLS.Key},
	}
	if c.State.Key == "" && c.State.Path != "" {
		all = append(all, secret{"state.path", c.State.Path + ".key"})
	}
	for name, issuer := range c.OAuth {
		all = append(all, secret{"oauth." + name + ".introspection.client_secret_file", issuer.Introspection.SecretFile})
	}
	for i, n := range c.SLIM.Nodes {
		at := "slim.nodes[" + strconv.Itoa(i) + "]"
		all = append(all, secret{at + ".shared_secret_file", n.SecretFile})
		if n.JWT != nil {
			all = append(all, secret{at + ".jwt.key", n.JWT.Key})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		for i, e := range c.Agents[name].Endpoints {
			for _, variable := range slices.Sorted(maps.Keys(e.Program.EnvFiles)) {
				all = append(all, secret{"agents.'" + name + "'.endpoints[" + strconv.Itoa(i) + "].program.env_files." + variable, e.Program.EnvFiles[variable]})
			}
		}
		for _, file := range c.Agents[name].Credential.Secrets() {
			all = append(all, secret{"agents.'" + name + "'.credential." + file.Key, file.Path})
		}
	}
	return slices.DeleteFunc(all, func(s secret) bool { return s.file == "" })
}

func hostOf(address string) (string, bool) {
	u, err := url.Parse(address)
	return u.Hostname(), err == nil && u.Hostname() != ""
}

// namesOf are the names by which clients may know the owner of a certificate.
func namesOf(leaf *x509.Certificate) string {
	names := slices.Clone(leaf.DNSNames)
	for _, address := range leaf.IPAddresses {
		names = append(names, address.String())
	}
	if len(names) == 0 {
		return "no host name"
	}
	return strings.Join(names, ", ")
}

func onAllAddresses(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	address, bad := netip.ParseAddr(host)
	return err == nil && (host == "" || bad == nil && address.IsUnspecified())
}
