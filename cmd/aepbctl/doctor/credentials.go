package doctor

import (
	"cmp"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect/identity"
)

const (
	checkCertificate = "our certificate"
	checkKey         = "our key"
	checkCA          = "CA"
)

// certificate looks at the operator's files.
func (v *checkRun) certificate() {
	for _, file := range []struct{ check, path, flag string }{{checkCertificate, v.Cert, "--cert"}, {checkKey, v.Key, "--key"}} {
		if !v.readable(file.check, file.path, file.flag) {
			return
		}
	}
	if info, err := os.Stat(v.Key); err == nil && info.Mode().Perm()&0o077 != 0 {
		v.warn(checkKey, "chmod 600 "+v.Key, "%s can be read by other users (mode %04o)", v.Key, info.Mode().Perm())
	}
	svid, err := identity.LoadSVID(v.Cert, v.Key)
	if err != nil {
		v.fail(checkCertificate, "give a certificate with a SPIFFE id and its own key, both PEM, with --cert and --key", "%s and %s do not make an identity: %v", v.Cert, v.Key, err)
		return
	}
	v.svid = svid
	v.life(checkCertificate, "have it issued again, and put it in place of "+v.Cert, string(svid.ID), svid.Chain[0])
}

// readable says why a file cannot be read.
func (v *checkRun) readable(check, path, flag string) bool {
	file, err := os.Open(path)
	switch {
	case err == nil:
		_ = file.Close() // nothing was written
		return true
	case errors.Is(err, fs.ErrNotExist):
		v.fail(check, "name it with "+flag+", or the folder of a gateway with --dir", "there is no file %s", path)
	case errors.Is(err, fs.ErrPermission):
		v.fail(check, "run this as the owner of the file, or name another with "+flag, "%s may not be read by this user", path)
	default:
		v.fail(check, "name another with "+flag, "%v", err)
	}
	return false
}

// month is enough time to renew a certificate of long life.
const month = 30 * 24 * time.Hour

// endsSoon: the last third of a life, and at most its last month.
func endsSoon(life identity.Life, now time.Time) bool {
	return now.After(life.FirstWarning()) && life.Until.Sub(now) < month
}

// life emits how long a certificate holds.
func (v *checkRun) life(check, remedy, whose string, leaf *x509.Certificate) {
	now, span := v.Now(), identity.Life{From: leaf.NotBefore, Until: leaf.NotAfter}
	switch {
	case now.Before(span.From):
		v.fail(check, "set the clock of this machine, or of the one that issued it", "%s is valid only in %s, from %s on", whose, terminal.Duration(span.From.Sub(now)), terminal.Instant(span.From))
	case span.Ended(now):
		v.fail(check, remedy, "%s expired %s ago, at %s", whose, terminal.Duration(now.Sub(span.Until)), terminal.Instant(span.Until))
	case endsSoon(span, now):
		v.warn(check, remedy, "%s expires in %s, at %s", whose, terminal.Duration(span.Until.Sub(now)), terminal.Instant(span.Until))
	default:
		v.ok(check, "%s, issued %s ago, valid for %s", whose, terminal.Duration(now.Sub(span.From)), terminal.Duration(span.Until.Sub(now)))
	}
}

// authority looks at whom we trust, and whether we are of them.
func (v *checkRun) authority() {
	if !v.readable(checkCA, v.CA, "--ca") {
		return
	}
	var bundle *identity.Bundle
	var err error
	if v.svid == nil {
		bundle, err = identity.LoadAnchors(v.CA)
	} else {
		domain, _, _ := strings.Cut(strings.TrimPrefix(string(v.svid.ID), "spiffe://"), "/")
		bundle, err = identity.LoadBundle(v.CA, domain)
	}
	if err == nil && len(bundle.Anchors()) == 0 {
		err = errors.New("it holds no certificate")
	}
	if err != nil {
		v.fail(checkCA, "name the CA certificate of the gateway's trust domain, PEM, with --ca", "%s cannot be used: %v", v.CA, err)
		return
	}
	v.bundle = bundle
	last := bundle.Anchors()[0]
	for _, anchor := range bundle.Anchors() {
		if anchor.NotAfter.After(last.NotAfter) {
			last = anchor
		}
	}
	v.life(checkCA, "get the CA certificate of now and put it in place of "+v.CA, v.CA, last)
	if v.svid == nil {
		return
	}
	if err := bundle.Vouches(v.svid, v.Now()); err != nil && v.Now().Before(v.svid.Expires()) {
		v.warn(checkCA, "name the CA that issued our certificate with --ca, or a certificate of this CA with --cert and --key", "%s did not issue our certificate %s: %v", v.CA, v.Cert, err)
	}
}

// source is what we show and trust in handshakes; nil: our files do not allow it.
func (v *checkRun) source() *identity.Source {
	if v.svid == nil || v.bundle == nil {
		return nil
	}
	source, err := identity.NewSource(v.svid, v.bundle)
	if err != nil {
		v.fail(checkCertificate, "give another one with --cert and --key", "%s cannot be used: %v", v.Cert, err)
		return nil
	}
	return source
}

// spiffeID is the id in a certificate, or else its name.
func spiffeID(leaf *x509.Certificate) string {
	if len(leaf.URIs) > 0 {
		return leaf.URIs[0].String()
	}
	return cmp.Or(leaf.Subject.CommonName, strings.Join(leaf.DNSNames, ", "), "a certificate without a name")
}
