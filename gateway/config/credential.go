package config

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport/credentials"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// Credential is what one agent is shown: one of its keys.
type Credential struct {
	Header      *CredentialHeader      `yaml:"header"`      // A header field with a fixed value.
	Bearer      *CredentialBearer      `yaml:"bearer"`      // A bearer token from a file, or one that a command writes.
	Basic       *CredentialBasic       `yaml:"basic"`       // A user name and a password.
	OAuth       *CredentialOAuth       `yaml:"oauth"`       // An access token of an OAuth token endpoint.
	Certificate *CredentialCertificate `yaml:"certificate"` // A client certificate in place of that of this gateway.
}

// CredentialHeader is a field with a value from a file.
type CredentialHeader struct {
	Name      string `yaml:"name"`       // Name of the field, such as X-Api-Key. Required.
	ValueFile string `yaml:"value_file"` // File with the value; read again when it changes. Required.
}

// CredentialBearer is a bearer token.
type CredentialBearer struct {
	TokenFile string            `yaml:"token_file"` // File with the token; read again when it changes. Exactly one of this and command is required.
	Command   []string          `yaml:"command"`    // Program and arguments. It writes the token, or JSON with token and expires_in (seconds), at most 64 KiB within 10s. A token without an end is used for 5m.
	Env       map[string]string `yaml:"env"`        // Environment variables of command besides PATH, HOME, USER, LANG and TMPDIR, by name.
	EnvFiles  map[string]string `yaml:"env_files"`  // Files with the values of secret environment variables of command, by name.
}

// CredentialBasic is a name and a password.
type CredentialBasic struct {
	User         string `yaml:"user"`          // User name, without a colon. Required.
	PasswordFile string `yaml:"password_file"` // File with the password; read again when it changes. Required.
}

// CredentialOAuth is an access token.
type CredentialOAuth struct {
	TokenURL   string   `yaml:"token_url"`          // https URL of the token endpoint. Required.
	ClientID   string   `yaml:"client_id"`          // Client that this gateway is there. Required; with svid its SPIFFE ID is the default.
	SecretFile string   `yaml:"client_secret_file"` // File with the secret of the client. Exactly one of this, key_file and svid is required.
	ClientAuth string   `yaml:"client_auth"`        // How the secret is sent: basic, in the Authorization header; or post, in the body. Default: basic.
	KeyFile    string   `yaml:"key_file"`           // File with the private key of the client (PEM, PKCS #8), P-256 or Ed25519, which signs client assertions (private_key_jwt).
	SVID       bool     `yaml:"svid"`               // true: the client assertion is a JWT-SVID of the Workload API; without workload_api a JWT that the key of the X.509-SVID signs. Default: false.
	Scopes     []string `yaml:"scopes"`             // Scopes of the token. Default: those that the endpoint chooses.
	Audience   []string `yaml:"audience"`           // audience parameters of the request. Default: none.
	Resource   []string `yaml:"resource"`           // resource parameters of the request (RFC 8707), absolute URIs. Default: none.
	Exchange   bool     `yaml:"exchange"`           // true: calls carry a token that the endpoint gives for the caller's own OAuth token (RFC 8693); callers without one are refused. Default: false.
}

// CredentialCertificate is a client certificate.
type CredentialCertificate struct {
	CertFile string `yaml:"cert_file"` // File with the certificate and its chain (PEM); read again when it changes. Required.
	KeyFile  string `yaml:"key_file"`  // File with the private key of the certificate (PEM). Required.
}

// SecretFile is a file with a secret, and its key below credential.
type SecretFile struct{ Key, Path string }

// Secrets are the files with secrets that a credential names.
func (c *Credential) Secrets() (files []SecretFile) {
	add := func(key, path string) {
		if path != "" {
			files = append(files, SecretFile{key, path})
		}
	}
	if c == nil {
		return nil
	}
	if c.Header != nil {
		add("header.value_file", c.Header.ValueFile)
	}
	if c.Bearer != nil {
		add("bearer.token_file", c.Bearer.TokenFile)
		for _, name := range slices.Sorted(maps.Keys(c.Bearer.EnvFiles)) {
			add("bearer.env_files."+name, c.Bearer.EnvFiles[name])
		}
	}
	if c.Basic != nil {
		add("basic.password_file", c.Basic.PasswordFile)
	}
	if c.OAuth != nil {
		add("oauth.client_secret_file", c.OAuth.SecretFile)
		add("oauth.key_file", c.OAuth.KeyFile)
	}
	if c.Certificate != nil {
		add("certificate.key_file", c.Certificate.KeyFile)
	}
	return files
}

// check finds what is wrong without looking at files.
func (c *Credential) check(path string, a Agent, say func(path, reason string)) {
	if c == nil {
		return
	}
	if count(c.Header != nil, c.Bearer != nil, c.Basic != nil, c.OAuth != nil, c.Certificate != nil) != 1 {
		say(path, "expected exactly one of header, bearer, basic, oauth and certificate")
	}
	if len(a.origins()) == 0 {
		say(path, "the agent has no http or https URL where a credential could be shown")
	}
	if c.Certificate != nil && a.Plain {
		say(path+".certificate", "an agent without TLS (plain) is shown no certificate")
	}
	c.Header.check(path+".header", say)
	c.Bearer.check(path+".bearer", say)
	c.Basic.check(path+".basic", say)
	c.OAuth.check(path+".oauth", say)
	c.Certificate.check(path+".certificate", say)
}

// count is how many are true.
func count(all ...bool) (n int) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

func (h *CredentialHeader) check(path string, say func(path, reason string)) {
	if h == nil {
		return
	}
	if h.ValueFile == "" {
		say(path+".value_file", "required")
	}
	if !credentialField(h.Name) {
		say(path+".name", "expected the name of a header field that is not one of HTTP's own, A2A's, MCP's or AEPB's")
	}
}

func (b *CredentialBasic) check(path string, say func(path, reason string)) {
	if b == nil {
		return
	}
	if b.PasswordFile == "" {
		say(path+".password_file", "required")
	}
	if b.User == "" || strings.Contains(b.User, ":") || strings.ContainsFunc(b.User, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		say(path+".user", "expected a name without a colon")
	}
}

func (t *CredentialCertificate) check(path string, say func(path, reason string)) {
	if t != nil && (t.CertFile == "" || t.KeyFile == "") {
		say(path, "cert_file and key_file are required")
	}
}

func (b *CredentialBearer) check(path string, say func(path, reason string)) {
	if b == nil {
		return
	}
	if (b.TokenFile == "") == (len(b.Command) == 0) {
		say(path, "expected exactly one of token_file and command")
	}
	if len(b.Command) == 0 {
		return
	}
	program := stdio.Program{Command: b.Command, Env: b.Env, EnvFiles: b.EnvFiles}
	if err := program.Validate(); err != nil {
		say(path+".command", err.Error())
	} else if err := program.Find(); err != nil {
		say(path+".command", err.Error())
	}
}

func (o *CredentialOAuth) check(path string, say func(path, reason string)) {
	if o == nil {
		return
	}
	if u, err := url.Parse(o.TokenURL); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		say(path+".token_url", "expected an https URL without credentials and fragment")
	}
	if count(o.SecretFile != "", o.KeyFile != "", o.SVID) != 1 {
		say(path, "expected exactly one of client_secret_file, key_file and svid")
	}
	if o.ClientID == "" && !o.SVID {
		say(path+".client_id", "required")
	}
	if !slices.Contains([]string{"", "basic", "post"}, o.ClientAuth) || o.ClientAuth != "" && o.SecretFile == "" {
		say(path+".client_auth", "expected basic or post, with client_secret_file")
	}
	o.checkRequest(path, say)
}

// checkRequest judges what a token is wanted for.
func (o *CredentialOAuth) checkRequest(path string, say func(path, reason string)) {
	if slices.ContainsFunc(o.Resource, func(text string) bool { u, err := url.Parse(text); return err != nil || !u.IsAbs() || u.Fragment != "" }) {
		say(path+".resource", "expected absolute URIs without a fragment (RFC 8707, section 2)")
	}
	if slices.ContainsFunc(o.Scopes, func(scope string) bool { return scope == "" || strings.ContainsAny(scope, " \"\\") }) {
		say(path+".scopes", "expected one scope in each entry")
	}
}

// credentialField reports whether a credential may be in a field: not where the protocols have something else.
func credentialField(name string) bool {
	lower := strings.ToLower(name)
	for _, taken := range []string{"content-", "proxy-", "sec-", "mcp-", "a2a-", "aepb-", "grpc-", "workload-", "accept", "if-"} {
		if strings.HasPrefix(lower, taken) {
			return false
		}
	}
	return name != "" && strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_") == "" && !slices.Contains([]string{
		"host", "connection", "te", "trailer", "transfer-encoding", "upgrade", "keep-alive", "expect", "execution-context", "last-event-id", "cookie", "range",
	}, lower)
}

// origins are where a credential of the agent is shown: at the URLs that the operator wrote.
func (a Agent) origins() (list []string) {
	add := func(text string) {
		if u, err := url.Parse(text); err == nil {
			if at := credentials.Origin(u); at != "" && !slices.Contains(list, at) {
				list = append(list, at)
			}
		}
	}
	add(a.Capability)
	for _, e := range a.Endpoints {
		if rest, ok := strings.CutPrefix(e.URL, "ws"); ok {
			add("http" + rest)
		}
		add(e.URL)
		if e.GRPC != "" {
			add("https://" + e.GRPC)
		}
	}
	return list
}

// Credentials are what agents of a configuration are shown, by name.
func Credentials(c Config) map[string]credentials.Config {
	all := map[string]credentials.Config{}
	for name, a := range c.Agents {
		if a.Credential != nil {
			all[name] = a.Credential.as(a.origins())
		}
	}
	return all
}

func (c *Credential) as(origins []string) credentials.Config {
	out := credentials.Config{Origins: origins}
	if h := c.Header; h != nil {
		out.Header = &credentials.Header{Name: http.CanonicalHeaderKey(h.Name), ValueFile: h.ValueFile}
	}
	if b := c.Bearer; b != nil {
		out.Bearer = &credentials.Bearer{TokenFile: b.TokenFile, Command: stdio.Program{Command: b.Command, Env: b.Env, EnvFiles: b.EnvFiles}}
	}
	if b := c.Basic; b != nil {
		out.Basic = &credentials.Basic{User: b.User, PasswordFile: b.PasswordFile}
	}
	if o := c.OAuth; o != nil {
		out.OAuth = &credentials.OAuth{
			TokenURL: o.TokenURL, ClientID: o.ClientID, SecretFile: o.SecretFile, InBody: o.ClientAuth == "post", KeyFile: o.KeyFile,
			SVID: o.SVID, Scopes: o.Scopes, Audience: o.Audience, Resource: o.Resource, Exchange: o.Exchange,
		}
	}
	if t := c.Certificate; t != nil {
		out.Certificate = &credentials.Certificate{CertFile: t.CertFile, KeyFile: t.KeyFile}
	}
	return out
}

// ReadCredentials reads every file that credentials of a configuration name, as a request would. Its error joins one for each file that
// cannot be used, and quotes none.
func ReadCredentials(c Config) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		credential := c.Agents[name].Credential
		if credential == nil {
			continue
		}
		note := func(key string, err error) {
			if err != nil {
				errs = append(errs, fmt.Errorf("agents.'%s'.credential.%s: %w", name, key, err))
			}
		}
		for _, file := range credential.Secrets() {
			_, err := credentials.ReadSecret(file.Path)
			switch file.Key {
			case "header.value_file", "bearer.token_file":
				_, err = credentials.ReadField(file.Path)
			case "oauth.key_file":
				_, err = credentials.ReadKey(file.Path)
			}
			note(file.Key, err)
		}
		if t := credential.Certificate; t != nil {
			note("certificate", credentials.Certificate{CertFile: t.CertFile, KeyFile: t.KeyFile}.Check())
		}
	}
	return errors.Join(errs...)
}

// PlainPlaces are the hosts and ports of the agent that are reached without TLS.
func (a Agent) PlainPlaces() (list []string) {
	for _, origin := range a.origins() {
		if at, ok := strings.CutPrefix(origin, "http://"); ok && a.Plain {
			list = append(list, at)
		}
	}
	return list
}
