package credentials

import (
	"net"
	"net/url"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// Kinds of credentials, as operators read them.
const (
	KindHeader      = "header"
	KindBearer      = "bearer"
	KindBasic       = "basic"
	KindOAuth       = "oauth"
	KindExchange    = "oauth-exchange"
	KindCertificate = "certificate"
)

// Config is the credential of one agent: one of its members. It is not changed.
type Config struct {
	Origins     []string // where it is shown, in the form of [Origin]
	Header      *Header
	Bearer      *Bearer
	Basic       *Basic
	OAuth       *OAuth
	Certificate *Certificate
}

// Header is a field with a value from a file.
type Header struct{ Name, ValueFile string }

// Bearer is a token from a file, or that a command writes.
type Bearer struct {
	TokenFile string
	Command   stdio.Program // without a Command: there is none
}

// Basic is a name and a password (RFC 7617).
type Basic struct{ User, PasswordFile string }

// OAuth is a token of a token endpoint: client credentials (RFC 6749, section 4.4) or an exchange (RFC 8693).
type OAuth struct {
	TokenURL   string
	ClientID   string // empty: the SPIFFE id of the gateway, with SVID
	SecretFile string // client_secret; of it, KeyFile and SVID one
	InBody     bool   // client_secret_post in place of client_secret_basic (RFC 6749, section 2.3.1)
	KeyFile    string // private_key_jwt (RFC 7523)
	SVID       bool   // the gateway's SVID vouches for it
	Scopes     []string
	Audience   []string
	Resource   []string // RFC 8707
	Exchange   bool     // the token is for the caller
}

// Certificate is a client certificate in place of the gateway's own (PEM).
type Certificate struct{ CertFile, KeyFile string }

// Kind is what operators read.
func (c Config) Kind() string {
	switch {
	case c.Header != nil:
		return KindHeader
	case c.Bearer != nil:
		return KindBearer
	case c.Basic != nil:
		return KindBasic
	case c.Certificate != nil:
		return KindCertificate
	case c.OAuth != nil && c.OAuth.Exchange:
		return KindExchange
	case c.OAuth != nil:
		return KindOAuth
	}
	return ""
}

// Origin is the scheme, host and port of an absolute http or https URL (RFC 6454, section 4); empty: it has none.
func Origin(u *url.URL) string {
	port := u.Port()
	switch {
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return ""
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), port)
}

// Check reads the certificate and its key.
func (c Certificate) Check() error {
	_, err := c.load()
	return err
}
