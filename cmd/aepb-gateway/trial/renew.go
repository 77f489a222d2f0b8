package trial

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
)

// Renewal is what a renewal did.
type Renewal struct {
	Issued []Certificate // as they are now
	Next   time.Time     // from when on the first of the others is due; zero: there are no others
	Skip   []string      // files that are of no certificate of this CA
}

// Renew issues certificates anew, for the same ids and names, with a new key each: those that are
// named, else each that ends within a third of its life or whose key is of another certificate.
// Each pair of files is replaced by itself; on an error the result has those that were.
func (f *Folder) Renew(names []string) (Renewal, error) {
	var done Renewal
	due, err := f.due(names, &done)
	if err != nil || len(due) == 0 {
		return done, err
	}
	authority, err := f.authority()
	if err != nil {
		return done, err
	}
	for _, old := range due {
		svid, err := authority.Issue(old.Leaf.URIs[0].Path, identity.SVIDRequest{DNSNames: old.Leaf.DNSNames, IPs: old.Leaf.IPAddresses})
		if err == nil {
			err = svid.WritePEM(f.pair(old.Name))
		}
		if err != nil {
			return done, fmt.Errorf("%s: %w", old.Name, err)
		}
		old.Leaf, old.Broken = svid.Chain[0], false
		done.Issued = append(done.Issued, old)
	}
	return done, nil
}

// due are the certificates to renew.
func (f *Folder) due(names []string, done *Renewal) ([]Certificate, error) {
	if len(names) > 0 {
		return f.named(names)
	}
	found, others, err := f.Certificates()
	if err != nil {
		return nil, err
	}
	done.Skip = others
	var due []Certificate
	for _, cert := range found {
		first := cert.life().FirstWarning()
		switch {
		case cert.Kind == KindCA:
		case cert.Kind == KindOther:
			done.Skip = append(done.Skip, cert.Name+certSuffix)
		case cert.Broken || !f.now().Before(first):
			due = append(due, cert)
		case done.Next.IsZero() || first.Before(done.Next):
			done.Next = first
		}
	}
	return due, nil
}

// named are the certificates with these names, which must be of this CA.
func (f *Folder) named(names []string) ([]Certificate, error) {
	var due []Certificate
	for i, name := range names {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("--renew %w", err)
		}
		if name == "ca" {
			return nil, errors.New("--renew ca: a new CA takes --renew-ca, and ca.pem must reach all callers and agents first")
		}
		if slices.Contains(names[:i], name) {
			continue
		}
		cert, err := f.certificate(name)
		if err != nil {
			return nil, fmt.Errorf("--renew %s: there is no certificate to renew: --list shows those that are there: %w", name, err)
		}
		if cert.Kind == KindOther {
			return nil, fmt.Errorf("--renew %s: its certificate (%s) is not of the CA in ca.pem, which is of the trust domain %s: the CA that signed it has to renew it", name, cert.ID, f.bundle.TrustDomain())
		}
		due = append(due, cert)
	}
	return due, nil
}

// RenewCA makes a new CA, with a new key in place of the old one. ca.pem and trust-bundle.json keep
// the former certificates of the CA beside the new one. No other certificate is issued.
func (f *Folder) RenewCA() error {
	authority, err := f.authority()
	if err != nil {
		return err
	}
	next, err := authority.Renewed()
	if err != nil {
		return err
	}
	if err := next.Save(f.dir); err != nil {
		return err
	}
	f.bundle, err = next.Bundle()
	return err
}

// PrintRenewal says what was renewed and what is next. word writes a path so that a shell reads it
// as one word.
func (f *Folder) PrintRenewal(w io.Writer, word func(string) string, done Renewal) error {
	var out strings.Builder
	for _, cert := range done.Issued {
		certFile, keyFile := f.pair(cert.Name)
		fmt.Fprintf(&out, "renewed %s, valid until %s:\n  %s, %s\n", cert.ID, day(cert.Leaf.NotAfter), certFile, keyFile)
	}
	switch {
	case len(done.Issued) > 0:
		out.WriteString("a running gateway reads its new files by itself; bring those of others to where they are used\n")
	case done.Next.IsZero():
		out.WriteString("there is no certificate to renew\n")
	default:
		fmt.Fprintf(&out, "nothing to renew before %s\n", day(done.Next))
	}
	for _, file := range done.Skip {
		fmt.Fprintf(&out, "left alone: %s, which is no certificate of this CA\n", f.file(file))
	}
	if ca := (Certificate{Leaf: f.anchor()}); !f.now().Before(ca.life().FirstWarning()) {
		fmt.Fprintf(&out, "the CA ends on %s, and nothing that it signs lasts longer. Make a new one:\n  aepb-gateway init --dir %s --renew-ca\n", day(ca.Leaf.NotAfter), word(f.dir))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// PrintRenewedCA says in which order the new CA reaches all that trust the former one.
func (f *Folder) PrintRenewedCA(w io.Writer, word func(string) string) error {
	anchors := f.bundle.Anchors()
	found, _, err := f.Certificates()
	if err != nil {
		return err
	}
	var names []string
	for _, cert := range found {
		if cert.Kind != KindCA && cert.Kind != KindOther {
			names = append(names, cert.Name)
		}
	}
	_, err = fmt.Fprintf(w, `made a new CA, valid until %[1]s:
  %[2]s, %[3]s
ca.pem has the former CA as well: what it signed is trusted until %[4]s at most. In this order:
1. Copy ca.pem to each caller, agent and partner that has a copy. A running gateway reads it by itself.
2. When all of them have it, issue their certificates anew, and bring each pair of files to where it is used:
  aepb-gateway init --dir %[5]s --renew %[6]s
`, day(anchors[0].NotAfter), f.file(identity.AnchorFile), f.file(identity.AnchorKeyFile), day(anchors[1].NotAfter), word(f.dir), strings.Join(names, " "))
	return err
}
