package identity

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Names of the files of a development folder.
const (
	AnchorFile     = "ca.pem"
	AnchorKeyFile  = "ca-key.pem"
	GatewayFile    = "gateway.pem"
	GatewayKeyFile = "gateway-key.pem"
	ClientFile     = "client.pem"
	ClientKeyFile  = "client-key.pem"
	BundleFile     = "trust-bundle.json"
)

const (
	secretMode fs.FileMode = 0o600
	publicMode fs.FileMode = 0o644
	folderMode fs.FileMode = 0o700
)

// Why a development folder is refused.
var (
	errKeyLost       = errors.New("identity: there is a ca.pem but no ca-key.pem; remove ca.pem to start a new trust domain")
	errOpenFolder    = errors.New("identity: other users may read or write the folder, and it holds files of others; use a folder of its own, or close it (chmod 700)")
	errForeignAnchor = errors.New("identity: ca.pem is not of this trust domain and ca-key.pem; use another folder, or remove both")
	errKeyAway       = errors.New("identity: the key of the CA, ca-key.pem, is not there: put it there as long as this command runs")
	errKeyOfAnother  = errors.New("identity: ca-key.pem is not the key of a certificate in ca.pem: put the two files of one CA there")
)

// Development is what a development folder holds, ready for use.
type Development struct {
	Authority *Authority
	Bundle    *Bundle
	Gateway   *SVID // spiffe://TRUST-DOMAIN/gateway, also localhost, 127.0.0.1 and ::1
	Client    *SVID // spiffe://TRUST-DOMAIN/client
}

// LoadOrCreate opens a development folder and makes whatever it lacks: the
// authority, the gateway's and a client's SVID and the trust bundle.
// Certificates that have expired or are in the last third of their life are
// issued again, for the same key; former anchors stay in the bundle. now may be nil.
//
// Several processes may do this at once and may be stopped at any moment: a key
// is created once, by the first process, and every certificate is a function
// of keys, so any mixture of their files is a consistent one.
func LoadOrCreate(dir, trustDomain string, now func() time.Time) (*Development, error) {
	if err := closeFolder(dir); err != nil {
		return nil, err
	}
	authority, err := openAuthority(dir, AuthorityDeps{TrustDomain: trustDomain, Now: now})
	if err != nil {
		return nil, err
	}
	if err := authority.Save(dir); err != nil {
		return nil, err
	}
	d := &Development{Authority: authority}
	if d.Bundle, err = authority.Bundle(); err != nil {
		return nil, err
	}
	local := SVIDRequest{DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	if d.Gateway, err = d.leaf(dir, "/gateway", GatewayFile, GatewayKeyFile, local); err != nil {
		return nil, err
	}
	if d.Client, err = d.leaf(dir, "/client", ClientFile, ClientKeyFile, SVIDRequest{}); err != nil {
		return nil, err
	}
	return d, nil
}

// closeFolder makes a folder that only we may look into. One that is there and
// open to others is closed if it is empty or a development folder; another may be
// shared for a reason (a home, /tmp), and is refused.
func closeFolder(dir string) error {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	// Read before the mode is asked for: another process that makes this folder closes
	// it first, so files that it has written are never seen in an open folder.
	content, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if info.Mode().Perm()&^folderMode == 0 {
		return nil
	}
	ours := slices.ContainsFunc(content, func(file fs.DirEntry) bool { return file.Name() == AnchorKeyFile })
	if len(content) > 0 && !ours {
		return fmt.Errorf("%w: %s", errOpenFolder, dir)
	}
	if err := os.Chmod(dir, folderMode); err != nil {
		return fmt.Errorf("identity: other users may read or write the folder, and it cannot be closed: %w", err)
	}
	return nil
}

// Save writes the authority to a folder: ca.pem, ca-key.pem, trust-bundle.json.
// Files that hold the same already are left alone. A key takes the place of another
// one after ca.pem has its anchor: [LoadAuthority] reads any state between.
func (a *Authority) Save(dir string) error {
	key, err := encodeKey(a.key)
	if err != nil {
		return err
	}
	bundle, err := a.Bundle()
	if err != nil {
		return err
	}
	jwks, err := bundle.MarshalJWKS()
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, AnchorFile), encodeCertificates(a.anchors), publicMode); err != nil {
		return err
	}
	return errors.Join(
		replaceFile(filepath.Join(dir, AnchorKeyFile), key, secretMode),
		replaceFile(filepath.Join(dir, BundleFile), append(jwks, '\n'), publicMode),
	)
}

// LoadAuthority reads the authority of a folder from ca.pem and ca-key.pem, and changes nothing. The
// anchor that the key belongs to signs. now may be nil. Its errors are those of reading, a key that is
// not there, is encrypted or is of no anchor, and [ErrNoTrustDomain].
func LoadAuthority(dir string, now func() time.Time) (*Authority, error) {
	bundle, err := LoadAnchors(filepath.Join(dir, AnchorFile))
	if err != nil {
		return nil, err
	}
	key, err := readKey(filepath.Join(dir, AnchorKeyFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errKeyAway
	case err != nil:
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	a := &Authority{domain: bundle.home, key: key, anchors: ownFirst(key, bundle.Anchors()), now: now}
	if !sameKey(key, a.anchors[0]) {
		return nil, errKeyOfAnother
	}
	return a, nil
}

// ownFirst puts the anchors of a key before the others. A renewal that was stopped between ca.pem and
// ca-key.pem leaves one in front whose key is lost.
func ownFirst(key crypto.Signer, anchors []*x509.Certificate) []*x509.Certificate {
	var others []*x509.Certificate
	own := slices.DeleteFunc(slices.Clone(anchors), func(anchor *x509.Certificate) bool {
		if sameKey(key, anchor) {
			return false
		}
		others = append(others, anchor)
		return true
	})
	return append(own, others...)
}

// openAuthority reads the authority's key and anchors, or makes them.
func openAuthority(dir string, deps AuthorityDeps) (*Authority, error) {
	keyFile := filepath.Join(dir, AnchorKeyFile)
	anchors, err := readCertificates(filepath.Join(dir, AnchorFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		anchors = nil
	case err != nil:
		return nil, err
	default:
		if _, err := os.Stat(keyFile); errors.Is(err, fs.ErrNotExist) {
			return nil, errKeyLost
		}
	}
	key, err := openKey(keyFile)
	if err != nil {
		return nil, err
	}
	anchors = ownFirst(key, anchors)
	authority, err := newAuthority(deps, key, anchors)
	if err != nil {
		return nil, err
	}
	for i, anchor := range anchors {
		if i == 0 && !sameKey(key, anchor) || !authority.names(anchor) {
			return nil, errForeignAnchor
		}
	}
	return authority, nil
}

// names reports whether an anchor is of the authority's trust domain.
func (a *Authority) names(anchor *x509.Certificate) bool {
	return len(anchor.URIs) == 1 && anchor.URIs[0].String() == a.domain.IDString()
}

// leaf opens an SVID of the folder and issues it (again) where it is missing,
// not this authority's, not the key's, or nearly over.
func (d *Development) leaf(dir, path, certFile, keyFile string, request SVIDRequest) (*SVID, error) {
	certFile, keyFile = filepath.Join(dir, certFile), filepath.Join(dir, keyFile)
	key, err := openKey(keyFile)
	if err != nil {
		return nil, err
	}
	if found, err := LoadSVID(certFile, keyFile); err == nil && d.good(found, path) {
		return found, nil
	}
	request.Key = key
	fresh, err := d.Authority.Issue(path, request)
	if err != nil {
		return nil, err
	}
	return fresh, replaceFile(certFile, encodeCertificates(fresh.Chain), publicMode)
}

func (d *Development) good(s *SVID, path string) bool {
	now := d.Authority.now()
	id, _, err := d.Bundle.verify(s.Chain, now)
	return err == nil && id.Path() == path && !stale(s.Chain[0], now)
}

// openKey reads a key, and makes it first when there is none.
func openKey(file string) (crypto.Signer, error) {
	key, err := readKey(file)
	if err == nil {
		return key, os.Chmod(file, secretMode) // whatever it was copied with
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fresh, err := newKey()
	if err != nil {
		return nil, err
	}
	text, err := encodeKey(fresh)
	if err != nil {
		return nil, err
	}
	if err := createFile(file, text, secretMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readKey(file) // another process has created it
}

func readKey(file string) (crypto.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("identity: %s holds no PEM block", file)
	}
	if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
		return nil, fmt.Errorf("identity: the key in %[1]s is encrypted: put the plain one there as long as this command runs: openssl pkey -in %[1]s -out PLAIN", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("identity: %s: %w", file, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok || !signsECT(key) {
		return nil, errKeyType
	}
	return key, nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("identity: encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCertificates(certs []*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, cert := range certs {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	}
	return text.Bytes()
}

func sameKey(key crypto.Signer, cert *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// replaceFile puts a whole file in place of whatever was there; a reader sees
// the old or the new one. A file that holds the same already is left alone.
func replaceFile(file string, content []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, content) {
		return nil
	}
	temporary, err := writeTemporary(file, content, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, file); err != nil {
		return errors.Join(fmt.Errorf("identity: %w", err), os.Remove(temporary))
	}
	return nil
}

// createFile creates a file with all its content; fs.ErrExist if another process was
// first. It links, because renaming would overwrite the file of that process.
func createFile(file string, content []byte, mode fs.FileMode) error {
	temporary, err := writeTemporary(file, content, mode)
	if err != nil {
		return err
	}
	if err := os.Link(temporary, file); err != nil {
		return errors.Join(fmt.Errorf("identity: %w", err), os.Remove(temporary))
	}
	return os.Remove(temporary)
}

// writeTemporary writes beside the file that is meant, so that a rename or a
// link stays on one file system.
func writeTemporary(file string, content []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return "", fmt.Errorf("identity: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("identity: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}
