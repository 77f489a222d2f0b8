package trial

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
)

// Kind is what a certificate of the folder is for. Its SPIFFE id says it.
type Kind string

// The kinds.
const (
	KindCA       Kind = "CA"
	KindGateway  Kind = "gateway"
	KindOperator Kind = "operator"
	KindAgent    Kind = "agent"
	KindCaller   Kind = "caller"
	KindOther    Kind = "other" // of another CA
)

const (
	certSuffix = ".pem"
	keySuffix  = "-key.pem"
	// longestName leaves space in a file name of 255 bytes, and is that of names of agents.
	longestName = 63
	// largestFile bounds a file that is read as a certificate, in bytes: a chain of ten has less.
	largestFile = 64 << 10
)

// Folder is a folder that has a CA, as init and dev make it.
type Folder struct {
	dir    string
	bundle *identity.Bundle // of ca.pem
	now    func() time.Time
}

// Certificate is one that lies in the folder.
type Certificate struct {
	Name   string // of its file, without .pem
	Kind   Kind
	ID     string // SPIFFE id
	Leaf   *x509.Certificate
	Broken bool // its key lies beside it and is of another certificate
}

// Open opens a folder that has ca.pem. The key of the CA is not read.
func Open(dir string, now func() time.Time) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	bundle, err := identity.LoadAnchors(filepath.Join(dir, identity.AnchorFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s has no CA (ca.pem): name the folder with --dir, or make one with aepb-gateway init --dir %[1]s", dir)
	case err != nil:
		return nil, err
	}
	return &Folder{dir: dir, bundle: bundle, now: now}, nil
}

func (f *Folder) file(name string) string { return filepath.Join(f.dir, name) }

// pair is the files of a certificate and of its key.
func (f *Folder) pair(name string) (certFile, keyFile string) {
	return f.file(name + certSuffix), f.file(name + keySuffix)
}

func (f *Folder) id(path string) string { return "spiffe://" + f.bundle.TrustDomain() + path }

// anchor is the newest certificate of the CA.
func (f *Folder) anchor() *x509.Certificate { return f.bundle.Anchors()[0] }

// authority reads the key of the CA, to issue with it.
func (f *Folder) authority() (*identity.Authority, error) {
	return identity.LoadAuthority(f.dir, f.now)
}

// checkName judges the name of a certificate: it is part of file names and of a SPIFFE id.
func checkName(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
	if name == "" || len(name) > longestName || strings.Trim(name, allowed) != "" || strings.ContainsAny(name[:1], "-._") {
		return fmt.Errorf("%q is not a valid name: expected 1 to %d letters, digits, dashes, dots and underscores, with a letter or digit first", name, longestName)
	}
	if strings.HasSuffix(strings.ToLower(name), "-key") {
		return fmt.Errorf("%q is not a valid name: files that end with -key.pem are keys", name)
	}
	return nil
}

// Certificates reads the certificates of the folder, those of the CA first. Files with the suffix
// .pem that hold none are named in the second result.
func (f *Folder) Certificates() (found []Certificate, others []string, err error) {
	for _, anchor := range f.bundle.Anchors() {
		found = append(found, Certificate{Name: "ca", Kind: KindCA, ID: f.id(""), Leaf: anchor})
	}
	files, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		name, isCert := strings.CutSuffix(file.Name(), certSuffix)
		if !isCert || file.Name() == identity.AnchorFile || strings.HasSuffix(file.Name(), keySuffix) || strings.HasPrefix(name, ".") {
			continue
		}
		cert, err := f.certificate(name)
		if err != nil {
			others = append(others, file.Name())
			continue
		}
		found = append(found, cert)
	}
	return found, others, nil
}

// certificate reads one of the folder.
func (f *Folder) certificate(name string) (Certificate, error) {
	certFile, keyFile := f.pair(name)
	text, err := read(certFile)
	if err != nil {
		return Certificate{}, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return Certificate{}, fmt.Errorf("%s holds no certificate: expected a PEM block CERTIFICATE", certFile)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Certificate{}, fmt.Errorf("%s: %w", certFile, err)
	}
	out := Certificate{Name: name, Kind: KindOther, Leaf: leaf}
	if len(leaf.URIs) > 0 {
		out.ID = leaf.URIs[0].String()
	}
	if f.issued(leaf) {
		out.Kind = kindOf(leaf.URIs[0].Path)
		if key, err := read(keyFile); err == nil {
			_, err = tls.X509KeyPair(text, key)
			out.Broken = err != nil
		}
	}
	return out, nil
}

// issued reports whether the CA of the folder has signed a certificate. One that has ended counts too.
func (f *Folder) issued(leaf *x509.Certificate) bool {
	at := f.now()
	if at.After(leaf.NotAfter) {
		at = leaf.NotAfter
	}
	return f.bundle.Vouches(&identity.SVID{Chain: []*x509.Certificate{leaf}}, at) == nil
}

// kindOf is the kind of a certificate of this CA, by the path of its SPIFFE id.
func kindOf(path string) Kind {
	switch {
	case path == "/gateway":
		return KindGateway
	case path == "/operator" || strings.HasPrefix(path, paths[KindOperator]):
		return KindOperator
	case strings.HasPrefix(path, paths[KindAgent]):
		return KindAgent
	default:
		return KindCaller
	}
}

// paths are what the paths of new SPIFFE ids begin with, by kind.
var paths = map[Kind]string{KindCaller: "/", KindAgent: "/agents/", KindOperator: "/operators/"}

func read(file string) ([]byte, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	return io.ReadAll(io.LimitReader(in, largestFile))
}

// names are those that a certificate has for clients that judge by host name.
func (c Certificate) names() []string {
	names := slices.Clone(c.Leaf.DNSNames)
	for _, address := range c.Leaf.IPAddresses {
		names = append(names, address.String())
	}
	return names
}

func (c Certificate) life() identity.Life {
	return identity.Life{From: c.Leaf.NotBefore, Until: c.Leaf.NotAfter}
}

// day is an instant as texts for operators have it.
func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }
