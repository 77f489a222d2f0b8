package devgateway

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// lifetime of the certificates issued here.
const lifetime = 24 * time.Hour

// ErrPEM says that a file of the development directory is not what its name says.
var ErrPEM = errors.New("devgateway: unexpected PEM content")

// Trust is a development trust domain: its CA and who is who in it. The one of
// a Process is read from its directory.
type Trust struct {
	ca      *x509.Certificate
	caKey   crypto.Signer
	gateway *url.URL // the gateway's SPIFFE id
	client  tls.Certificate
}

// NewTrust makes a trust domain of its own, for comparisons without a gateway.
func NewTrust(domain string) (*Trust, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("devgateway: %w", err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: domain},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("devgateway: %w", err)
	}
	t := &Trust{caKey: key, gateway: &url.URL{Scheme: "spiffe", Host: domain, Path: "/gateway"}}
	if t.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("devgateway: %w", err)
	}
	t.client, err = t.issue("client")
	return t, err
}

func readTrust(dir string) (*Trust, error) {
	t := &Trust{}
	var err error
	if t.ca, err = readCertificate(filepath.Join(dir, "ca.pem")); err != nil {
		return nil, err
	}
	if t.caKey, err = readKey(filepath.Join(dir, "ca-key.pem")); err != nil {
		return nil, err
	}
	gateway, err := readCertificate(filepath.Join(dir, "gateway.pem"))
	if err != nil {
		return nil, err
	}
	if len(gateway.URIs) != 1 {
		return nil, fmt.Errorf("%w: gateway.pem has %d URI names", ErrPEM, len(gateway.URIs))
	}
	t.gateway = gateway.URIs[0]
	t.client, err = tls.LoadX509KeyPair(filepath.Join(dir, "client.pem"), filepath.Join(dir, "client-key.pem"))
	if err != nil {
		return nil, fmt.Errorf("devgateway: client: %w", err)
	}
	return t, nil
}

func readBlock(file string) (*pem.Block, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("devgateway: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%w: %s", ErrPEM, filepath.Base(file))
	}
	return block, nil
}

func readCertificate(file string) (*x509.Certificate, error) {
	block, err := readBlock(file)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(block.Bytes)
}

func readKey(file string) (crypto.Signer, error) {
	block, err := readBlock(file)
	if err != nil {
		return nil, err
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPEM, filepath.Base(file), err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: %s holds no signing key", ErrPEM, filepath.Base(file))
	}
	return signer, nil
}

// Roots trusts the development CA only.
func (t *Trust) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(t.ca)
	return pool
}

// GatewayID is the gateway's SPIFFE id, from its certificate.
func (t *Trust) GatewayID() string { return t.gateway.String() }

// TrustDomain is the name of the development trust domain.
func (t *Trust) TrustDomain() string { return t.gateway.Host }

// ClientSVID is the development client's certificate and key.
func (t *Trust) ClientSVID() tls.Certificate { return t.client }

// Client speaks HTTP/1.1 over TLS 1.3 and trusts the development CA; certs are
// what it authenticates with, none makes it anonymous. Every call returns a
// client with its own connections, which the caller closes.
func (t *Trust) Client(certs ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: t.Roots(), Certificates: certs, MinVersion: tls.VersionTLS13},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     10 * time.Minute,
	}}
}

// PeerTLS issues a day-long server certificate for a peer on the loopback
// interface, named spiffe://<trust domain>/peer/<name>.
func (t *Trust) PeerTLS(name string) (*tls.Config, error) {
	cert, err := t.issue("peer/" + name)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}, nil
}

// SVID issues a day-long certificate to a caller, named
// spiffe://<trust domain>/caller/<name>.
func (t *Trust) SVID(name string) (tls.Certificate, error) { return t.issue("caller/" + name) }

func (t *Trust) issue(path string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("devgateway: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("devgateway: %w", err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             now.Add(-time.Minute),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true, // other SPIFFE libraries look for it
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: t.gateway.Host, Path: "/" + path}},
	}, t.ca, &key.PublicKey, t.caKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("devgateway: certificate of %s: %w", path, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("devgateway: certificate of %s: %w", path, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Thumbprint is the kid of a P-256 key: its JWK thumbprint (RFC 7638, section 3).
func Thumbprint(key *ecdsa.PublicKey) (string, error) {
	point, err := key.Bytes() // 4 || X || Y
	if err != nil || len(point) != 65 {
		return "", fmt.Errorf("%w: not a P-256 key", ErrPEM)
	}
	coordinate := base64.RawURLEncoding.EncodeToString
	jwk := `{"crv":"P-256","kty":"EC","x":"` + coordinate(point[1:33]) + `","y":"` + coordinate(point[33:]) + `"}`
	sum := sha256.Sum256([]byte(jwk))
	return coordinate(sum[:]), nil
}

// Replica writes what one of several gateways needs into dir: a certificate of
// its own for the identity that they share, gateway.pem with gateway-key.pem, and
// the trust anchor ca.pem.
func (t *Trust) Replica(dir string) error { return t.gatewayFiles(dir, "gateway") }

// Neighbor is Replica for another gateway, named spiffe://<trust domain>/peer/<name>.
func (t *Trust) Neighbor(dir, name string) error { return t.gatewayFiles(dir, "peer/"+name) }

func (t *Trust) gatewayFiles(dir, path string) error {
	svid, err := t.issue(path)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(svid.PrivateKey)
	if err != nil {
		return fmt.Errorf("devgateway: %w", err)
	}
	for name, text := range map[string][]byte{
		"gateway.pem":     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: svid.Certificate[0]}),
		"gateway-key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		"ca.pem":          t.RootsPEM(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("devgateway: %w", err)
		}
	}
	return nil
}

// RootsPEM is the development CA's certificate.
func (t *Trust) RootsPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: t.ca.Raw})
}
