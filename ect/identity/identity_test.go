package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const domain = "example.org"

// noon is when these tests happen.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func authority(t *testing.T, trustDomain string) *Authority {
	t.Helper()
	a, err := NewAuthority(AuthorityDeps{TrustDomain: trustDomain, Now: at(noon)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func bundleOf(t *testing.T, a *Authority) *Bundle {
	t.Helper()
	b, err := a.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func issue(t *testing.T, a *Authority, path string, request SVIDRequest) *SVID {
	t.Helper()
	s, err := a.Issue(path, request)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// craft signs a certificate that no Authority would, for a new key.
func craft(t *testing.T, parent *x509.Certificate, signer crypto.Signer, change func(*x509.Certificate)) *SVID {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		URIs: []*url.URL{link(t, "spiffe://"+domain+"/agents/crafted")},
	}
	change(template)
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &SVID{Chain: []*x509.Certificate{cert}, Key: key}
}

func link(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestAuthority_Issue(t *testing.T) {
	t.Parallel()
	a := authority(t, domain)
	for name, path := range map[string]string{"with slash": "/agents/echo", "without slash": "agents/echo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := issue(t, a, path, SVIDRequest{DNSNames: []string{"localhost"}})
			if s.ID != "spiffe://example.org/agents/echo" {
				t.Errorf("id %q", s.ID)
			}
			if got := s.Expires().Sub(noon); got != DefaultTTL {
				t.Errorf("valid for %v", got)
			}
			if err := s.Chain[0].VerifyHostname("localhost"); err != nil {
				t.Error(err)
			}
		})
	}
	for name, path := range map[string]string{"anonymous": "/anonymous", "no path": "", "dots": "/a/../b", "space": "/a b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s, err := a.Issue(path, SVIDRequest{}); err == nil {
				t.Errorf("issued %q", s.ID)
			}
		})
	}
	t.Run("never outlives the anchor", func(t *testing.T) {
		t.Parallel()
		s := issue(t, a, "/long", SVIDRequest{TTL: 10 * authorityLife})
		if end := a.anchors[0].NotAfter; !s.Expires().Equal(end) {
			t.Errorf("ends %v, the anchor %v", s.Expires(), end)
		}
	})
	t.Run("long names", func(t *testing.T) {
		t.Parallel()
		issue(t, a, "/agents/"+strings.Repeat("n", 200), SVIDRequest{})
	})
	t.Run("other curve", func(t *testing.T) {
		t.Parallel()
		key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Issue("/x", SVIDRequest{Key: key}); err == nil {
			t.Error("certified a P-384 key")
		}
	})
}

func TestBundle_VerifyChain(t *testing.T) {
	t.Parallel()
	a := authority(t, domain)
	root, other := a.anchors[0], authority(t, "other.org")
	trust := bundleOf(t, a)
	trust.Federate(bundleOf(t, other))
	// The anchor may not have authorities below it; this one may.
	wide := craft(t, nil, nil, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.Subject.CommonName = true, x509.KeyUsageCertSign, "wide"
	})
	wideTrust, err := NewBundle(domain, wide.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	middle := craft(t, wide.Chain[0], wide.Key, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.Subject.CommonName = true, x509.KeyUsageCertSign, "middle"
	})
	under := craft(t, middle.Chain[0], middle.Key, func(*x509.Certificate) {})
	// Valid today too, whenever that is: what is judged at no time must not be judged as of now.
	age := func(c *x509.Certificate) { c.NotBefore, c.NotAfter = noon.AddDate(-10, 0, 0), noon.AddDate(100, 0, 0) }
	ageless := craft(t, nil, nil, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.Subject.CommonName = true, x509.KeyUsageCertSign, "ageless"
		age(c)
	})
	agelessTrust, err := NewBundle(domain, ageless.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	always := craft(t, ageless.Chain[0], ageless.Key, age).Chain
	good := issue(t, a, "/agents/good", SVIDRequest{TTL: time.Hour}).Chain
	leaf := func(change func(*x509.Certificate)) []*x509.Certificate { return craft(t, root, a.key, change).Chain }

	tests := []struct {
		name  string
		chain []*x509.Certificate
		trust *Bundle
		at    time.Time
		ok    bool
	}{
		{"issued", good, trust, noon, true},
		{"federated", issue(t, other, "/agents/far", SVIDRequest{}).Chain, trust, noon, true},
		{"with intermediate", append(under.Chain, middle.Chain...), wideTrust, noon, true},
		{"intermediate missing", under.Chain, wideTrust, noon, false},
		{"crafted like an issued one", leaf(func(*x509.Certificate) {}), trust, noon, true},
		{"not yet valid", good, trust, noon.Add(-2 * time.Minute), false},
		{"expired", good, trust, noon.Add(time.Hour + time.Second), false},
		{"at any instant", always, agelessTrust, noon, true},
		{"at no instant", always, agelessTrust, time.Time{}, false},
		{"empty", nil, trust, noon, false},
		{"too long", append(append([]*x509.Certificate{}, good...), root, root, root, root, root), trust, noon, false},
		{"too large", leaf(func(c *x509.Certificate) { c.DNSNames = []string{strings.Repeat("a.", maxCertificate/2) + "b"} }), trust, noon, false},
		{"nobody's", craft(t, nil, nil, func(*x509.Certificate) {}).Chain, trust, noon, false},
		{"anchor of another domain", leaf(func(c *x509.Certificate) { c.URIs = []*url.URL{link(t, "spiffe://other.org/gateway")} }), trust, noon, false},
		{"unknown domain", leaf(func(c *x509.Certificate) { c.URIs = []*url.URL{link(t, "spiffe://third.org/gateway")} }), trust, noon, false},
		{"two ids", leaf(func(c *x509.Certificate) { c.URIs = append(c.URIs, link(t, "spiffe://"+domain+"/b")) }), trust, noon, false},
		{"no id", leaf(func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"localhost"} }), trust, noon, false},
		{"id of a domain", leaf(func(c *x509.Certificate) { c.URIs = []*url.URL{link(t, "spiffe://"+domain)} }), trust, noon, false},
		{"may not sign", leaf(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }), trust, noon, false},
		{"authority", leaf(func(c *x509.Certificate) { c.IsCA = true }), trust, noon, false},
		{"may sign certificates", leaf(func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign; c.IsCA = true }), trust, noon, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := test.trust.verify(test.chain, test.at)
			if (err == nil) != test.ok {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

func TestBundle_TrustReplacesAnchors(t *testing.T) {
	t.Parallel()
	before, after := authority(t, domain), authority(t, domain)
	trust := bundleOf(t, before)
	chain := issue(t, before, "/gateway", SVIDRequest{}).Chain
	if _, _, err := trust.verify(chain, noon); err != nil {
		t.Fatal(err)
	}
	trust.Trust(bundleOf(t, after))
	if _, _, err := trust.verify(chain, noon); err == nil {
		t.Error("a withdrawn anchor still vouches")
	}
}

func TestAnonymous_Identity(t *testing.T) {
	t.Parallel()
	nobody := Anonymous(domain)
	if nobody.ID != ect.Identity("spiffe://example.org/anonymous") || !nobody.Anonymous || nobody.Key != nil {
		t.Errorf("%+v", nobody)
	}
}
