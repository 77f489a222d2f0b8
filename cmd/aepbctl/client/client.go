// Package client talks to a gateway for the commands of aepbctl, with the identity and the trust anchors that the
// flags name, and says in words why a gateway refuses or does not answer.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// Client is the gateway that a command talks to, as whom, and how the command prints: what the flags of all
// commands say.
type Client struct {
	Dir, Gateway, Admin, Cert, Key, CA string
	Output                             string // text or json
}

// Add adds the flags.
func (c *Client) Add(flags *pflag.FlagSet) {
	flags.StringVar(&c.Dir, "dir", ".aepb", "folder of a development gateway")
	flags.StringVar(&c.Gateway, "gateway", "", "public URL of the gateway (default: the one in --dir)")
	flags.StringVar(&c.Admin, "admin", "", "admin URL of the gateway (default: the one in --dir)")
	flags.StringVar(&c.Cert, "cert", "", "our certificate chain, PEM (default: client.pem in --dir)")
	flags.StringVar(&c.Key, "key", "", "our private key, PEM (default: client-key.pem in --dir)")
	flags.StringVar(&c.CA, "ca", "", "trust anchors, PEM (default: ca.pem in --dir)")
	flags.StringVarP(&c.Output, "output", "o", "text", "text or json")
}

func (c *Client) file(flag, name string) string { return cmp.Or(flag, filepath.Join(c.Dir, name)) }

// CertFile is the file of our certificate chain.
func (c *Client) CertFile() string { return c.file(c.Cert, "client.pem") }

// KeyFile is the file of our private key.
func (c *Client) KeyFile() string { return c.file(c.Key, "client-key.pem") }

// CAFile is the file of the trust anchors.
func (c *Client) CAFile() string { return c.file(c.CA, "ca.pem") }

// Bundle is what we trust. The trust domain is that of our own certificate.
func (c *Client) Bundle() (*identity.Bundle, error) {
	svid, err := c.SVID()
	if err != nil {
		return nil, err
	}
	domain, _, _ := strings.Cut(strings.TrimPrefix(string(svid.ID), "spiffe://"), "/")
	return identity.LoadBundle(c.CAFile(), domain)
}

// SVID is our certificate and key.
func (c *Client) SVID() (*identity.SVID, error) {
	cert, key := c.CertFile(), c.KeyFile()
	for _, file := range []string{cert, key} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("our certificate and key: %w: name them with --cert and --key, or a gateway's folder with --dir", err)
		}
	}
	return identity.LoadSVID(cert, key)
}

// Signer signs with our key, as the identity of our certificate.
func (c *Client) Signer() (*ect.Signer, ect.Identity, error) {
	svid, err := c.SVID()
	if err != nil {
		return nil, "", err
	}
	signer, err := ect.NewSigner(ect.SignerDeps{Key: svid.Key, Chain: svid.Chain, Issuer: svid.ID, Now: time.Now})
	return signer, svid.ID, err
}

// HTTP is a client that shows our certificate and trusts our anchors.
func (c *Client) HTTP() (*http.Client, error) {
	svid, err := c.SVID()
	if err != nil {
		return nil, err
	}
	bundle, err := c.Bundle()
	if err != nil {
		return nil, err
	}
	source, err := identity.NewSource(svid, bundle)
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Timeout:       sendTimeout,
		Transport:     &http.Transport{TLSClientConfig: source.ClientConfig("")},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// PublicURL is that of the public listener.
func (c *Client) PublicURL() (string, error) { return c.base(c.Gateway, "public") }

// AdminURL is that of the operators' listener.
func (c *Client) AdminURL() (string, error) { return c.base(c.Admin, "admin") }

// base is a listener's URL: the flag's, else what the gateway of --dir wrote.
func (c *Client) base(flag, member string) (string, error) {
	if flag != "" && !strings.Contains(flag, "://") {
		return "", fmt.Errorf("--gateway and --admin are URLs such as https://127.0.0.1:8443, not %q", flag)
	}
	if flag != "" {
		return strings.TrimRight(flag, "/"), nil
	}
	data, err := os.ReadFile(filepath.Join(c.Dir, "addresses.json"))
	if err != nil {
		return "", fmt.Errorf("no gateway has run in %s (name one with --gateway and --admin): %w", c.Dir, err)
	}
	var known map[string]string
	if err := json.Unmarshal(data, &known); err != nil || known[member] == "" {
		return "", fmt.Errorf("addresses.json in %s is unreadable", c.Dir)
	}
	return known[member], nil
}

// Trust are the flags that name trust anchors.
type Trust struct{ Bundle, Domain string }

// Add adds them.
func (t *Trust) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.Bundle, "bundle", "", "a SPIFFE bundle (JSON) in place of the CA file; needs --trust-domain")
	cmd.Flags().StringVar(&t.Domain, "trust-domain", "", "the trust domain of the trust anchors (default: the one that their certificates name, else that of --cert)")
}

// Check refuses a bundle of no trust domain.
func (t *Trust) Check() error {
	if t.Bundle != "" && t.Domain == "" {
		return errors.New("--bundle needs the name of its trust domain: add --trust-domain")
	}
	return nil
}

// Anchors are what tokens are verified against: a bundle, or the CA file. Our own certificate is needed
// only where neither names the trust domain.
func (c *Client) Anchors(bundleFile, domain string) (*identity.Bundle, error) {
	ca := c.CAFile()
	switch {
	case bundleFile != "":
		data, err := os.ReadFile(bundleFile)
		if err != nil {
			return nil, err
		}
		return identity.ParseBundle(domain, data)
	case domain != "":
		return identity.LoadBundle(ca, domain)
	}
	bundle, err := identity.LoadAnchors(ca)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: name the CA's certificate with --ca", err)
	}
	if !errors.Is(err, identity.ErrNoTrustDomain) {
		return bundle, err
	}
	if bundle, own := c.Bundle(); own == nil {
		return bundle, nil
	}
	return nil, fmt.Errorf("%w: add --trust-domain", err)
}

// Verify judges tokens with what we trust.
func (c *Client) Verify(ctx context.Context, tokens []string) ([]audit.Record, error) {
	bundle, err := c.Bundle()
	if err != nil {
		return nil, err
	}
	return Verify(ctx, bundle, tokens)
}

// Verify judges tokens with the anchors of a bundle.
func Verify(ctx context.Context, bundle *identity.Bundle, tokens []string) ([]audit.Record, error) {
	verifier, err := Verifier(bundle)
	if err != nil {
		return nil, err
	}
	return audit.Verify(ctx, verifier, tokens), nil
}

// Verifier verifies with the anchors of a bundle.
func Verifier(bundle *identity.Bundle) (*ect.Verifier, error) {
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: bundle})
	if err != nil {
		return nil, err
	}
	return ect.NewVerifier(ect.VerifierDeps{Keys: keys, Now: time.Now})
}
